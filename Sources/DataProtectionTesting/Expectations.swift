import WardFormat
import WardSimulation

/// What a test expected of a program's files, and what was there instead. Thrown, so that it fails
/// a test in any framework.
public struct UnmetExpectation: Error, Sendable, CustomStringConvertible {
    /// "nothing is touched that can't be read".
    public var expectation: String
    /// What speaks against it, one line each.
    public var evidence: [String]

    public var description: String {
        "expected that \(expectation), but:\n"
            + evidence.map { "  - " + $0 }.joined(separator: "\n")
    }
}

extension SimulatedDevice {
    /// Expects that `launch`, run before first unlock, touches nothing that it can't read then:
    /// what a push, an alarm or a background fetch does to an app on a phone that was restarted in
    /// a pocket. The device stays before first unlock.
    @discardableResult
    public func expectNothingDeniedBeforeFirstUnlock<Value>(
        isolation: isolated (any Actor)? = #isolation, _ launch: () async throws -> Value
    ) async throws -> Value {
        try await reboot()
        return try await expectNothingDenied(isolation: isolation, launch)
    }

    /// Expects that `body` is refused nothing because of a class, in whatever state the device is.
    @discardableResult
    public func expectNothingDenied<Value>(
        isolation: isolated (any Actor)? = #isolation, _ body: () async throws -> Value
    ) async throws -> Value {
        let name = try await state.rawValue
        let recording = try await outcome(isolation: isolation, of: body)
        // The refusals say more than the error that came of them.
        var evidence = recording.denials.map(\.description)
        if case .failure(let error) = recording.value, !evidence.isEmpty {
            evidence.append("and then it threw \(error)")
        }
        try SimulatedDevice.require("nothing is touched that can't be read (\(name))", evidence)
        return try recording.value.get()
    }

    /// Expects that no file with content was ever deleted or replaced while it could not be read:
    /// the way apps that take "locked" for "damaged" destroy what people have.
    public func expectNothingRemovedUnread() async throws {
        try SimulatedDevice.require(
            "no file is deleted or replaced while it can't be read",
            try await removedUnread.map(\.description))
    }

    /// Expects that every file in a directory and below it has this class. `directory`: inside the
    /// volume; "" for all. One without any file is not as expected either.
    public func expectFiles(
        under directory: String = "", are protectionClass: ProtectionClass
    ) async throws {
        let audit = try await audit()
        let place = directory.isEmpty ? "the volume" : directory
        let expectation = "every file under \(place) is class \(protectionClass.name)"
        let others = audit.files(under: directory, notOf: protectionClass)
        let count = audit.files(under: directory).count
        try SimulatedDevice.require(
            expectation,
            count == 0
                ? ["there is no file"]
                : others.map { "\($0.path) is class \($0.protectionClass.name)" })
    }

    /// Expects that an audit finds nothing, or only kinds that are allowed here: no database with
    /// side files of another class, no readable copy of a protected file, nothing removed unread.
    /// Needs a device that is not locked.
    @discardableResult
    public func expectCleanAudit(
        allowing allowed: Set<Finding.Kind> = []
    ) async throws -> Audit {
        let audit = try await audit()
        let expectation = "an audit finds nothing"
        let findings = audit.findings.filter { !allowed.contains($0.kind) }
        try SimulatedDevice.require(
            expectation,
            audit.unread.map { "\($0) can't be read while \(audit.state)" }
                + findings.map(\.description))
        return audit
    }

    private static func require(_ expectation: String, _ evidence: [String]) throws {
        guard evidence.isEmpty else {
            throw UnmetExpectation(expectation: expectation, evidence: evidence)
        }
    }
}
