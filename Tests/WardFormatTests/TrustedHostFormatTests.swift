import Testing
import WardCrypto
import WardSystem

@testable import WardFormat

/// The two files of a trusted host: its own record, and the device's table.
@Suite struct TrustedHostFormatTests {
    private func bytes(_ record: borrowing HostRecord) throws -> [UInt8] {
        let file = try record.serialized()
        return file.withUnsafeBytes { [UInt8]($0) }
    }

    private func secret(_ bytes: [UInt8]) throws -> SecretBytes {
        var result = try SecretBytes(zeroed: bytes.count)
        result.withUnsafeMutableBytes { $0.copyBytes(from: bytes) }
        return result
    }

    @Test func recordComesBackAsItWas() throws {
        let uuid = SystemRandom.bytes(16)
        let record = try HostRecord(volumeUUID: uuid)
        let file = try bytes(record)
        #expect(file.count == HostRecord.bytes)
        #expect(
            Array(file[..<48])
                == Array("WARDHOST".utf8) + [1, 0] + [UInt8](repeating: 0, count: 6) + uuid
                + record.hostID)
        #expect(Array(file[80...]) == SHA256Digest.hash(Array(file[..<80])))
        let read = try HostRecord(reading: try secret(file))
        #expect(read.volumeUUID == uuid && read.hostID == record.hostID)
        let isAsBefore = read.secret == record.secret
        #expect(isAsBefore)
        #expect(try bytes(read) == file)
        let other = try HostRecord(volumeUUID: uuid)
        #expect(other.hostID != record.hostID)
        let isSame = other.secret == record.secret
        #expect(!isSame)
    }

    @Test func everyFlippedByteOfARecordIsSeen() throws {
        let file = try bytes(try HostRecord(volumeUUID: SystemRandom.bytes(16)))
        for index in file.indices {
            var changed = file
            changed[index] ^= 0x10
            #expect(throws: FormatError.self, "byte \(index)") {
                _ = try HostRecord(reading: try secret(changed)).hostID
            }
        }
    }

    @Test func recordsOfOtherLengthsAreRefused() throws {
        let file = try bytes(try HostRecord(volumeUUID: SystemRandom.bytes(16)))
        for changed in (0..<file.count).map({ Array(file[..<$0]) }) + [file + [0]] {
            #expect(throws: FormatError.self, "\(changed.count) bytes") {
                _ = try HostRecord(reading: try secret(changed)).hostID
            }
        }
        // Longer, with a correct checksum.
        let longer = Array(file[..<80]) + [0]
        let changed = longer + SHA256Digest.hash(longer)
        #expect(throws: FormatError.self) {
            _ = try HostRecord(reading: try secret(changed)).hostID
        }
    }

    @Test func aNewerRecordSaysSo() throws {
        var file = try bytes(try HostRecord(volumeUUID: SystemRandom.bytes(16)))
        file[8] = 2
        file.replaceSubrange(80..., with: SHA256Digest.hash(Array(file[..<80])))
        do throws(FormatError) {
            let given: SecretBytes
            do { given = try secret(file) } catch { fatalError("no memory") }
            _ = try HostRecord(reading: given).hostID
            Issue.record("taken")
        } catch {
            #expect(error.code == .newerVersion)
        }
    }

    private func table(_ names: [String]) -> TrustedHostTable {
        var table = TrustedHostTable(uuid: SystemRandom.bytes(16), latestTime: 1_800_000_007)
        for (index, name) in names.enumerated() {
            var entry = TrustedHostEntry(
                hostID: SystemRandom.bytes(16), name: name, made: 1_800_000_000,
                lastUsed: 1_800_000_000 + UInt64(index))
            if index % 2 == 0 { entry.sealed = SystemRandom.bytes(TrustedHostEntry.sealedBytes) }
            table.hosts.append(entry)
        }
        table.mac = SystemRandom.bytes(32)
        return table
    }

    @Test func tableComesBackAsItWas() throws {
        for names in [
            ["laptop"], ["laptop", "büro", "📱"],
            (0..<32).map { String(repeating: "x", count: 62) + "\($0 + 10)" },
        ] {
            let table = table(names)
            let bytes = table.serialized
            #expect(bytes.count <= TrustedHostTable.maximumBytes)
            let read = try TrustedHostTable(reading: bytes)
            #expect(read == table && read.serialized == bytes)
        }
    }

    @Test func everyFlippedOrMissingByteOfATableIsSeen() throws {
        let table = table(["laptop", "desk"])
        let bytes = table.serialized
        for index in bytes.indices {
            var changed = bytes
            changed[index] ^= 0x04
            #expect(throws: FormatError.self, "byte \(index)") {
                try TrustedHostTable(reading: changed)
            }
            #expect(throws: FormatError.self, "\(index) bytes") {
                try TrustedHostTable(reading: Array(bytes[..<index]))
            }
            // With a corrected checksum it parses to another table or not at all; the MAC shows the
            // change.
            changed.replaceSubrange(
                (bytes.count - 32)..., with: SHA256Digest.hash(Array(changed.dropLast(32))))
            if index < bytes.count - 32, let read = try? TrustedHostTable(reading: changed) {
                #expect(read != table, "byte \(index)")
                #expect(
                    read.authenticated != table.authenticated || read.mac != table.mac,
                    "byte \(index)")
            }
        }
    }

    @Test func impossibleTablesAreRefused() {
        func sealed(_ change: (inout [UInt8]) -> Void) -> [UInt8] {
            var body = table(["laptop", "desk"]).authenticated
            change(&body)
            return KeybagEnvelope.seal(body + [UInt8](repeating: 0, count: 32))
        }
        #expect(throws: Never.self) { try TrustedHostTable(reading: sealed { _ in }) }
        let changes: [(String, (inout [UInt8]) -> Void)] = [
            ("no host", { $0[10] = 0 }), ("more than 32", { $0[10] = 33 }),
            ("one host too many", { $0[10] = 3 }), ("one too few", { $0[10] = 1 }),
            ("reserved", { $0[12] = 1 }), ("reserved of a host", { $0[40 + 33] = 1 }),
            ("no name", { $0[40 + 32] = 0 }), ("a name of 255 bytes", { $0[40 + 32] = 255 }),
            ("a slot of another length", { $0[40 + 34] = 122 }),
            ("a slot longer than the file", { $0[40 + 35] = 255 }),
            ("not UTF-8", { $0[40 + 36] = 0xFF }), ("a control character", { $0[40 + 36] = 0x1B }),
        ]
        for (what, change) in changes {
            #expect(throws: FormatError.self, "\(what)") {
                try TrustedHostTable(reading: sealed(change))
            }
        }
        var twice = table(["laptop", "desk"])
        twice.hosts[1].name = "laptop"
        #expect(throws: FormatError.self) { try TrustedHostTable(reading: twice.serialized) }
        #expect(throws: FormatError.self) {
            try TrustedHostTable(reading: [UInt8](repeating: 0, count: 1 << 20))
        }
    }

    @Test func namesAreTextThatDrivesNoTerminal() {
        for name in ["a", "Anna's laptop", "büro 2", String(repeating: "x", count: 64)] {
            #expect(TrustedHostEntry.isName(name), "\(name)")
        }
        for name in [
            "", "a\nb", "\u{1B}[2J", "\u{7F}", "a\u{202E}b", String(repeating: "x", count: 65),
        ] {
            #expect(!TrustedHostEntry.isName(name))
        }
    }
}
