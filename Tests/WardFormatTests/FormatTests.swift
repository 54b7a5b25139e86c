import Testing
import WardCrypto
import WardSystem

@testable import WardFormat

@Suite struct FormatTests {
    @Test(arguments: [512, 4096])
    func pageArithmeticAgreesWithItself(pageBytes: Int) {
        let layout = PageLayout(pageBytes: pageBytes)
        var start = 0
        for page in 0..<40 {
            #expect(layout.start(ofPage: page) == start)
            #expect(layout.page(at: start) == page)
            start += layout.capacity(ofPage: page)
            #expect(layout.page(at: start - 1) == page)
            #expect(layout.pageCount(forSize: start) == page + 1)
            for size in [start - 1, start, start + 1] {
                #expect(layout.size(fromBackingSize: layout.backingSize(forSize: size)) == size)
            }
        }
        #expect(layout.size(fromBackingSize: pageBytes * 3) == nil, "no hint")
    }

    @Test func headerComesBackAsItWas() throws {
        let key = try SecretBytes(random: 32)
        for (protectionClass, count) in [
            (ProtectionClass.complete, 40), (.completeUnlessOpen, 72), (.none, 0),
        ] {
            let header = FileHeader(
                protectionClass: protectionClass, isSparse: count == 40,
                fileID: SystemRandom.bytes(16), directoryID: SystemRandom.bytes(16),
                wrappedKey: SystemRandom.bytes(count))
            var bytes = [UInt8](repeating: 0, count: 256)
            bytes.withUnsafeMutableBytes {
                header.write(to: $0.baseAddress!, macKey: key, format: .version1)
            }
            let read = try bytes.withUnsafeBytes {
                try FileHeader(reading: $0.baseAddress!, macKey: key, format: .version1)
            }
            #expect(read == header)
        }
    }

    @Test func everyFlippedHeaderByteIsSeen() throws {
        let key = try SecretBytes(random: 32)
        let header = FileHeader(
            protectionClass: .complete, fileID: SystemRandom.bytes(16),
            directoryID: SystemRandom.bytes(16), wrappedKey: SystemRandom.bytes(40))
        var bytes = [UInt8](repeating: 0, count: 256)
        bytes.withUnsafeMutableBytes {
            header.write(to: $0.baseAddress!, macKey: key, format: .version1)
        }
        for index in 0..<256 {
            var changed = bytes
            changed[index] ^= 0x40
            #expect(throws: FormatError.self, "byte \(index)") {
                try changed.withUnsafeBytes {
                    try FileHeader(reading: $0.baseAddress!, macKey: key, format: .version1)
                }
            }
        }
    }

    @Test func directoryRecordFitsIntoAnInode() throws {
        let key = try SecretBytes(random: 32)
        let record = DirectoryRecord(
            directoryID: SystemRandom.bytes(16), protectionClass: .completeUnlessOpen)
        let target = record.linkTarget(macKey: key, parentID: nil)
        #expect(target.utf8.count < 60)
        #expect(try DirectoryRecord(linkTarget: target, macKey: key, parentID: nil) == record)
        let other = try SecretBytes(random: 32)
        #expect(throws: FormatError.self) {
            try DirectoryRecord(linkTarget: target, macKey: other, parentID: nil)
        }
        #expect(throws: FormatError.self) {
            try DirectoryRecord(linkTarget: "", macKey: key, parentID: nil)
        }
    }

    /// Records without a mark equal those of version 1 byte for byte, so that a volume without
    /// marks stays readable for old programs.
    @Test func directoryRecordGoldenBytes() throws {
        let key = try SecretBytes(zeroed: 32)
        let id = (0..<16).map { UInt8($0) }
        let plain = DirectoryRecord(directoryID: id, protectionClass: .completeUnlessOpen)
        let marked = DirectoryRecord(
            directoryID: id, protectionClass: .completeUntilFirstUserAuthentication,
            isSynchronised: true)
        let golden = [
            (plain, "AQIAAAABAgMEBQYHCAkKCwwNDg8Mz7gt9y0M03590dt8EKr1"),
            (marked, "AgMBAAABAgMEBQYHCAkKCwwNDg-mypqAUKoqtIFpVcw8ngLk"),
        ]
        for (record, target) in golden {
            #expect(record.linkTarget(macKey: key, parentID: nil) == target)
            #expect(try DirectoryRecord(linkTarget: target, macKey: key, parentID: nil) == record)
        }
        #expect(Base64URL.decode(golden[0].1)?.prefix(4) == [1, 2, 0, 0])
        #expect(Base64URL.decode(golden[1].1)?.prefix(4) == [2, 3, 1, 0])
    }

    /// Bytes 0 to 3 with values that ward never writes, and a correct MAC.
    @Test func directoryRecordRefusesOtherFlagsAndVersions() throws {
        let key = try SecretBytes(zeroed: 32)
        for head: [UInt8] in [
            [0, 3, 0, 0], [1, 3, 1, 0], [2, 3, 0, 0], [2, 3, 2, 0], [2, 3, 3, 0], [2, 3, 1, 1],
            [1, 0, 0, 0], [1, 6, 0, 0],
        ] {
            #expect {
                try DirectoryRecord(linkTarget: seal(head, key), macKey: key, parentID: nil)
            } throws: {
                ($0 as? FormatError)?.code == .malformed
            }
        }
        #expect {
            try DirectoryRecord(linkTarget: seal([4, 3, 0, 0], key), macKey: key, parentID: nil)
        } throws: {
            ($0 as? FormatError)?.code == .newerVersion
        }
    }

    private func seal(_ head: [UInt8], _ key: borrowing SecretBytes) -> String {
        let body = head + [UInt8](repeating: 9, count: 16)
        return Base64URL.encode(body + HMACSHA256.authenticate(body, key: key)[0..<16])
    }

    @Test func stateRecordComesBackAndKeepsItsLimits() throws {
        let key = try SecretBytes(random: 32)
        let record = VolumeStateRecord(
            format: .version1, isInUse: true, epoch: 77, doubtful: [3...4, 9...10])
        #expect(
            try VolumeStateRecord(reading: record.serialized(macKey: key), macKey: key) == record)
        let many = VolumeStateRecord(
            format: .version1, isInUse: true, epoch: 900,
            doubtful: (0..<80).map { UInt32($0 * 4)...UInt32($0 * 4 + 1) })
        #expect(many.doubtful == [0...317])
        for index in record.serialized(macKey: key).indices {
            var changed = record.serialized(macKey: key)
            changed[index] ^= 1
            #expect(throws: FormatError.self) {
                try VolumeStateRecord(reading: changed, macKey: key)
            }
        }
    }

    @Test func base64URLHasOneSpellingForEachName() {
        for count in 0..<70 {
            let bytes = SystemRandom.bytes(count)
            let text = Base64URL.encode(bytes)
            #expect(text.utf8.count == Base64URL.encodedCount(count))
            #expect(Base64URL.decode(text) == bytes)
        }
        #expect(Base64URL.decode("AB") == nil, "bits that no encoder leaves")
        #expect(Base64URL.decode("A") == nil)
        #expect(Base64URL.decode("A=") == nil)
        #expect(Base64URL.decode("a.b") == nil)
    }

    @Test(arguments: [
        ("A", ProtectionClass.complete), ("b", .completeUnlessOpen),
        ("cx", .completeWhenUserInactive),
        ("none", .none), ("NSFileProtectionComplete", .complete),
        ("NSURLFileProtectionCompleteUnlessOpen", .completeUnlessOpen),
        ("NSFileProtectionWriteOnly", .completeUnlessOpen),
        ("NSFileProtectionCompleteUntilUserAuthentication", .completeUntilFirstUserAuthentication),
    ])
    func classesAreReadInEverySpelling(spelling: String, expected: ProtectionClass) {
        #expect(ProtectionClass(spelling: spelling) == expected)
    }

    @Test func otherSpellingsAreNoClass() {
        for spelling in ["", "E", "Complete ", "NSFileProtection", "complete\0"] {
            #expect(ProtectionClass(spelling: spelling) == nil)
        }
    }
}
