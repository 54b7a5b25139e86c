import Testing
import WardContainers

@Suite struct ContainerRecordTests {
    private func record() throws -> ContainerRecord {
        ContainerRecord(
            id: try ContainerID("org.example.diary"), kind: .extension,
            classAtCreation: "NSFileProtectionComplete",
            entitlement: "NSFileProtectionCompleteUnlessOpen",
            groups: [try ContainerID("group.b"), try ContainerID("group.a")], team: "ABCDE12345",
            created: "2026-11-21T10:30:00.123Z")
    }

    @Test("a record is read as it was written, with its groups sorted")
    func roundTrip() throws {
        let record = try record()
        #expect(try ContainerRecord(parsing: record.bytes) == record)
        #expect(record.groups.map(\.text) == ["group.a", "group.b"])
        var plain = record
        (plain.entitlement, plain.groups, plain.team) = (nil, [], nil)
        #expect(try ContainerRecord(parsing: plain.bytes) == plain)
    }

    @Test("background modes come back, sorted, and others are damage")
    func background() throws {
        var record = try record()
        record.backgroundModes = ["audio", "bluetooth-central"]
        #expect(try ContainerRecord(parsing: record.bytes) == record)
        #expect(
            String(decoding: record.bytes, as: UTF8.self).contains(
                ",\"background\":[\"audio\",\"bluetooth-central\"],"))
        for mode in ["", "a b", "ü", "x/y", "1", String(repeating: "a", count: 65)] {
            record.backgroundModes = [mode]
            #expect(throws: ContainerRecord.Damage.self, "\(mode)") {
                try ContainerRecord(parsing: record.bytes)
            }
        }
    }

    @Test("what it looks like")
    func text() throws {
        #expect(
            String(decoding: try record().bytes, as: UTF8.self)
                == """
                {"version":1,"id":"org.example.diary","kind":"extension",\
                "class":"NSFileProtectionComplete","entitlement":"NSFileProtectionCompleteUnlessOpen",\
                "groups":["group.a","group.b"],"team":"ABCDE12345",\
                "created":"2026-11-21T10:30:00.123Z"}
                """)
    }

    @Test("what a later version adds is passed over; a later version is not")
    func later() throws {
        let text = String(decoding: try record().bytes, as: UTF8.self)
        let more = text.dropLast() + ",\"colour\":{\"deep\":[1]}}"
        #expect(try ContainerRecord(parsing: Array(more.utf8)) == record())
        let error = #expect(throws: ContainerRecord.Damage.self) {
            try ContainerRecord(
                parsing: Array(("{\"version\":2" + text.dropFirst("{\"version\":1".count)).utf8))
        }
        #expect(error?.reason.contains("later ward") == true)
    }

    @Test(
        "anything else is damage, with a reason",
        arguments: [
            "", "{", "[]", "null", "{}", "{\"version\":1}", "{\"version\":\"1\"}",
            "{\"version\":1,\"id\":\"../x\",\"kind\":\"group\",\"class\":\"NSFileProtectionNone\",\"created\":\"\"}",
            "{\"version\":1,\"id\":\"x\",\"kind\":\"app\",\"class\":\"NSFileProtectionNone\",\"created\":\"\"}",
            "{\"version\":1,\"id\":\"x\",\"kind\":\"group\",\"class\":\"A\",\"created\":\"\"}",
            "{\"version\":1,\"id\":\"x\",\"kind\":\"group\",\"class\":\"NSFileProtectionNone\",\"created\":\"\",\"groups\":[3]}",
            "{\"version\":1,\"id\":\"x\",\"kind\":\"group\",\"class\":\"NSFileProtectionNone\",\"created\":\"\",\"team\":\"../x\"}",
            "{\"version\":1,\"id\":\"x\",\"kind\":\"group\",\"class\":\"NSFileProtectionNone\",\"created\":\"\\u001b]0;2026\"}",
            String(repeating: "[", count: 3000), String(repeating: " ", count: 5000),
        ])
    func damage(_ text: String) {
        let error = #expect(throws: ContainerRecord.Damage.self) {
            try ContainerRecord(parsing: Array(text.utf8))
        }
        #expect(error?.reason.isEmpty == false)
    }

    @Test("no cut or changed byte of a record makes it anything but a record or damage")
    func mutations() throws {
        let bytes = try record().bytes
        for count in 0..<bytes.count {
            #expect(throws: ContainerRecord.Damage.self) {
                try ContainerRecord(parsing: Array(bytes[..<count]))
            }
        }
        for index in bytes.indices {
            for bit in 0..<8 {
                var changed = bytes
                changed[index] ^= 1 << bit
                guard let record = try? ContainerRecord(parsing: changed) else { continue }
                #expect(try ContainerRecord(parsing: record.bytes) == record)
            }
        }
    }

    @Test("where a container lies, and what a path is about")
    func layout() throws {
        let id = try ContainerID("org.example.diary")
        for (kind, path) in [
            (ContainerKind.application, "Containers/Data/Application/org.example.diary"),
            (.extension, "Containers/Data/PluginKitPlugin/org.example.diary"),
            (.group, "Containers/Shared/AppGroup/org.example.diary"),
        ] {
            #expect(ContainerLayout.path(kind, id) == path)
            let parsed = ContainerLayout.parse(containerPath: "/mnt/v/" + path)
            #expect(parsed?.volume == "/mnt/v" && parsed?.kind == kind && parsed?.id == id)
        }
        for path in ["", "/", "/mnt/org.example.diary", "/mnt/Containers/Data/Application/..", "x"]
        {
            #expect(ContainerLayout.parse(containerPath: path) == nil)
        }
    }
}
