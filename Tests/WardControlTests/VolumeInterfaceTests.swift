import Testing

@testable import WardControl

/// The interface text for clients in other languages agrees with the Swift types.
@Suite struct VolumeInterfaceTests {
    /// The fields of a parenthesised list, by name.
    private func fields(_ keyword: String, _ name: String) throws -> [String: String] {
        let text = VolumeInterface.description
        let heads = ["\(keyword) \(name) (", "\(keyword) \(name)("]
        let found = heads.compactMap { head in text.firstRange(of: head)?.upperBound }
        let start = try #require(found.first, "\(keyword) \(name)")
        let list = text[start...].prefix { $0 != ")" }
        var result: [String: String] = [:]
        for field in list.split(separator: ",") {
            let parts = field.split(separator: ":").map { $0.filter { !$0.isWhitespace } }
            if parts.count == 2 { result[String(parts[0])] = String(parts[1]) }
        }
        return result
    }

    private func check(_ json: JSONValue, against fields: [String: String]) throws {
        guard case .object(let members) = json else {
            Issue.record("not an object")
            return
        }
        #expect(Set(members.map(\.key)) == Set(fields.keys))
        for (key, value) in members {
            let type = try #require(fields[key]).drop { $0 == "?" }
            let agrees =
                switch (type, value) {
                case ("string", .string), ("bool", .bool), ("int", .int), ("float", .double): true
                case (_, .array): type.hasPrefix("[]")
                default: false
                }
            #expect(agrees, "\(key): \(type)")
        }
    }

    @Test("what a sandbox is told: the state, and nothing of other programs, files and the volume")
    func narrowed() throws {
        var told = status.narrowed
        // Every member that clients need is there.
        #expect(VolumeStatus(json: told.json) == told)
        #expect(told.state == status.state && told.mountpoint == status.mountpoint)
        #expect(told.protectedDataAvailable && told.firstUnlockHappened && told.passcodeSet)
        #expect(told.graceRemainingSeconds == 2.5 && told.classes[0].available)
        told.graceRemainingSeconds = nil
        told.userInactiveRemainingSeconds = nil
        told.protectedDataAvailable = false
        told.firstUnlockHappened = false
        let nothing = VolumeStatus(
            uuid: "", volume: "", mountpoint: "/m", state: "locking", since: told.since,
            passcodeSet: true, graceSeconds: 10, graceRemainingSeconds: nil,
            classes: [ClassStatus(letter: "A", name: "complete", available: true, openFiles: 0)],
            pid: 0, version: "1", readOnly: false, manualClock: false)
        #expect(told == nothing)

        for kind in ControlEvent.Kind.allCases {
            var event = ControlEvent(
                kind: kind, state: "locked", path: "/p", protectionClass: "A", operation: "open",
                pid: 1, uid: 2, program: "cat", secondsLeft: 3, seconds: 4, files: 5, detail: "d")
            event.sequence = 6
            guard let narrowed = event.narrowed else { continue }
            #expect(
                narrowed
                    == ControlEvent(
                        time: event.time, kind: kind, state: "locked", protectionClass: "A",
                        secondsLeft: 3))
        }
        let silent: [ControlEvent.Kind] = [
            .denied, .lost, .note, .removedUnread, .trustedHost, .kernelCheck,
        ]
        for kind in silent { #expect(ControlEvent(kind: kind).narrowed == nil) }
    }

    private var status: VolumeStatus {
        var status = VolumeStatus(
            uuid: "u", volume: "/v", mountpoint: "/m", state: "locking", since: Timestamp.now(),
            passcodeSet: true, graceSeconds: 10, graceRemainingSeconds: 2.5,
            classes: [ClassStatus(letter: "A", name: "complete", available: true, openFiles: 1)],
            pid: 1,
            version: "1", readOnly: false, manualClock: false)
        status.protectedDataAvailable = true
        status.firstUnlockHappened = true
        status.userInactiveRemainingSeconds = 7.5
        status.policyForged = true
        status.triesLeft = 4
        status.retrySeconds = 60.5
        status.eraseAfterTries = true
        status.recoveryKit = "current"
        status.recoveryKitMade = "2026-11-21T10:30:00.000Z"
        status.recoveryKitVerified = "2026-11-22T10:30:00.000Z"
        status.unsyncedBytes = 1
        status.pendingStoreBytes = 2
        status.lost = 3
        status.lostPaths = ["/a\n"]
        status.integrityFailures = 4
        status.denied = 5
        status.hosts = ["laptop\u{1B}", "desk"]
        status.requests = [RequestCount(name: "LOOKUP", count: 7)]
        status.transport = "io-uring"
        status.sequence = 6
        status.locksAt = [
            LockTrigger(kind: .sleep, armed: true, why: "the machine does not wait"),
            LockTrigger(kind: .screen, armed: false, why: "no login manager"),
        ]
        status.eraseInSeconds = 59.5
        status.kernelCheck = "failed"
        status.kernelCheckWhy = "it keeps pages"
        status.format = 2
        status.isUpgrading = true
        return status
    }

    @Test func statusAgrees() throws {
        // Read once, because it contains the time.
        let status = status
        try check(status.json, against: fields("type", "VolumeStatus"))
        try check(status.classes[0].json, against: fields("type", "ClassStatus"))
        try check(status.requests[0].json, against: fields("type", "RequestCount"))
        let triggers = try #require(status.locksAt)
        try check(triggers[0].json, against: fields("type", "LockTrigger"))
        for kind in LockTrigger.Kind.allCases {
            #expect(VolumeInterface.description.contains(kind.rawValue))
        }
        #expect(VolumeStatus(json: status.json) == status)
    }

    @Test func eventAgrees() throws {
        var event = ControlEvent(
            kind: .denied, state: "locked", path: "/p", protectionClass: "A", operation: "open",
            pid: 1, uid: 2, program: "cat", secondsLeft: 1.5, seconds: 2.5, files: 3, detail: "d")
        event.sequence = 7
        event.count = 8
        event.lastTime = Timestamp.now()
        try check(event.json, against: fields("type", "Event"))
        #expect(ControlEvent(json: event.json) == event)
        for kind in ControlEvent.Kind.allCases {
            #expect(VolumeInterface.description.contains(kind.rawValue))
        }
    }

    @Test func holdersAgree() throws {
        var report = HolderReport()
        report.holders = [
            Holder(
                pid: 1, uid: 2, program: "vi\u{1B}", path: "/a\nb", protectionClass: "A",
                use: .mappedForWriting)
        ]
        report.unreadable = 3
        report.unattributed = 4
        report.isComplete = false
        report.leftOut = 5
        try check(report.holders[0].json, against: fields("type", "Holder"))
        #expect(HolderReport(json: report.json) == report)
        for use in Holder.Use.allCases {
            #expect(VolumeInterface.description.contains(use.rawValue))
        }
    }

    @Test func hostsAgree() throws {
        let host = HostStatus(
            name: "laptop\n", made: Timestamp.now(), lastUsed: Timestamp.now(), expires: "e",
            expired: true, connected: 2)
        try check(host.json, against: fields("type", "TrustedHost"))
        #expect(HostStatus(json: host.json) == host)
    }

    @Test("a status of an older daemon is understood")
    func olderStatus() throws {
        guard case .object(let members) = status.json else { return }
        let first: Set = [
            "uuid", "volume", "mountpoint", "state", "since", "passcodeSet", "graceSeconds",
            "classes", "pid", "version", "readOnly", "manualClock",
        ]
        let older = JSONValue.object(members.filter { first.contains($0.key) })
        let read = try #require(VolumeStatus(json: older))
        #expect(read.state == status.state)
        #expect(read.triesLeft == nil)
    }

    @Test(
        arguments: VolumeError.all(
            .object([
                ("triesLeft", .int(3)), ("seconds", .int(60)), ("reason", .string("r")),
                ("what", .string("w")), ("why", .string("y")),
            ])))
    func errorAgrees(_ error: VolumeError) throws {
        try check(error.parameters, against: fields("error", error.name))
        let name = VolumeInterface.qualified(error.name)
        #expect(VolumeError(qualifiedName: name, parameters: error.parameters) == error)
    }

    /// The names of all methods, or of all errors, of the text.
    private func names(_ keyword: String) -> Set<String> {
        Set(
            VolumeInterface.description.split(separator: "\n").compactMap { line in
                guard line.hasPrefix(keyword + " ") else { return nil }
                return String(line.dropFirst(keyword.count + 1).prefix { $0 != "(" && $0 != " " })
            })
    }

    @Test func methodsAgree() {
        #expect(names("method") == Set(ControlMethod.allCases.map(\.rawValue)))
    }

    @Test("the text and the table have the same errors")
    func errorNamesAgree() {
        #expect(names("error") == Set(VolumeError.all(.object([])).map(\.name)))
    }

    @Test func timesAreRFC3339() {
        #expect(
            Timestamp.text(.seconds(1_763_720_628) + .milliseconds(7)) == "2025-11-21T10:23:48.007Z"
        )
    }
}
