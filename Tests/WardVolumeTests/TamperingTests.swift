import Foundation
import Glibc
import Testing
import WardFormat
import WardSystem

@testable import WardVolume

/// Ciphertext that another program changed gives `EIO`, never wrong bytes. Damage that an unclean
/// end can leave is excused and repaired.
@Suite struct TamperingTests {
    /// Makes one file of three pages, and closes it and the volume. Returns the path of its backing
    /// file.
    private func makeFile(_ harness: VolumeHarness, _ data: [UInt8]) throws -> String {
        let (node, handle) = try harness.create("file")
        try harness.write(handle, 0, data)
        harness.volume.release(handle, harness.context)
        harness.volume.forget(node, lookups: 1)
        let names = try FileManager.default.contentsOfDirectory(atPath: harness.directory)
        return harness.directory + "/" + names.first { !$0.contains(".") && $0 != "README" }!
    }

    private func content(_ harness: VolumeHarness) throws -> [UInt8] {
        let node = try harness.lookup("file").node
        let handle = try harness.open(node)
        defer { harness.volume.release(handle, harness.context) }
        return try harness.read(handle, 0, 1 << 20)
    }

    @Test func everyFlippedByteIsSeenOrDoesNotMatter() throws {
        let harness = try VolumeHarness(pageBytes: 512)
        let data = (0..<1000).map { UInt8(truncatingIfNeeded: $0) }
        let path = try makeFile(harness, data)
        let original = try Data(contentsOf: URL(fileURLWithPath: path))
        try harness.reopen()
        for index in 0..<original.count {
            var changed = original
            changed[index] ^= 0x01
            try changed.write(to: URL(fileURLWithPath: path))
            let got = try? content(harness)
            if index < (original.count / 512) * 512 {
                #expect(got == nil, "byte \(index) was changed and nobody saw it")
            } else {
                #expect(got == data, "the tail is nobody's")
            }
        }
        #expect(harness.events.integrityFailures.count > 1000)
    }

    @Test func pagesSwappedCutOrWipedAreSeen() throws {
        for attack in ["swap", "cut", "wipe", "wipe first"] {
            let harness = try VolumeHarness()
            let data = (0..<11_000).map { UInt8(truncatingIfNeeded: $0 &* 3) }
            let path = try makeFile(harness, data)
            try harness.reopen()
            var bytes = try Data(contentsOf: URL(fileURLWithPath: path))
            switch attack {
            case "swap":
                let second = bytes[4096..<8192]
                bytes.replaceSubrange(4096..<8192, with: bytes[0..<4096])
                bytes.replaceSubrange(0..<4096, with: second)
            case "cut": bytes = bytes[0..<8192]
            case "wipe": bytes.replaceSubrange(4096..<8192, with: Data(count: 4096))
            default: bytes.replaceSubrange(0..<4096, with: Data(count: 4096))
            }
            try bytes.write(to: URL(fileURLWithPath: path))
            #expect((try? content(harness)) == nil, "\(attack)")
            #expect(!harness.events.integrityFailures.isEmpty, "\(attack)")
        }
    }

    @Test("The last page of a sparse file is no hole, though it was zeroed while the file is open")
    func lastPageOfASparseFile() throws {
        let harness = try VolumeHarness()
        let (node, handle) = try harness.create("file")
        try harness.write(handle, 0, [1, 2, 3])
        try harness.write(handle, 20_000, [4, 5, 6])
        let path =
            harness.directory + "/"
            + (try FileManager.default.contentsOfDirectory(atPath: harness.directory)).first {
                !$0.contains(".") && $0 != "README"
            }!
        #expect(try harness.read(handle, 10_000, 10) == [UInt8](repeating: 0, count: 10))
        #expect(truncate(path, 4096) == 0)
        #expect(throws: Errno.ioError) { try harness.read(handle, 20_000, 3) }
        #expect(try harness.read(handle, 0, 3) == [1, 2, 3])
        #expect(harness.events.integrityFailures == ["/file: page 4 is zero"])
        harness.volume.release(handle, harness.context)
        harness.volume.forget(node, lookups: 1)
    }

    @Test func whatAPowerCutLeavesIsAcceptedOnceAndMended() throws {
        for finding in ["no final page", "wiped page"] {
            let harness = try VolumeHarness()
            let data = (0..<11_000).map { UInt8(truncatingIfNeeded: $0 &* 3) }
            let path = try makeFile(harness, data)
            // The volume is never closed, so the pages of this epoch are in doubt.
            var bytes = try Data(contentsOf: URL(fileURLWithPath: path))
            var expected = data
            if finding == "no final page" {
                bytes = bytes[0..<8192]
                expected = Array(data[0..<(3804 + 4060)])
            } else {
                bytes.replaceSubrange(4096..<8192, with: Data(count: 4096))
                expected.replaceSubrange(3804..<7864, with: [UInt8](repeating: 0, count: 4060))
            }
            try bytes.write(to: URL(fileURLWithPath: path))
            try harness.reopen(clean: false)
            #expect(try content(harness) == expected, "\(finding)")
            harness.volume.mendDoubtfulFiles { false }
            #expect(harness.volume.durability.doubt.intervals.isEmpty, "\(finding)")
            try harness.reopen()
            #expect(try content(harness) == expected, "\(finding), mended")
            #expect(harness.events.integrityFailures.isEmpty, "\(finding)")
        }
    }

    @Test func aPlantedDirectoryOrNameIsNotBelieved() throws {
        let harness = try VolumeHarness()
        try FileManager.default.createDirectory(
            atPath: harness.directory + "/AAAAAAAAAAAAAAAAAAAAAAAAAAAA",
            withIntermediateDirectories: false)
        _ = FileManager.default.createFile(
            atPath: harness.directory + "/notes.txt", contents: Data("x".utf8))
        #expect(try harness.names().isEmpty)
        let foreign = harness.events.all.filter {
            if case .foreignFile = $0 { true } else { false }
        }
        #expect(foreign.count == 2)
    }
}
