import Foundation
import Glibc
import Testing
import WardFormat
import WardSystem

@testable import WardVolume

/// A copy that was made while the volume was in use opens. The order in which its files were copied
/// does not matter (docs/format.md §8, "Copies"). A copy of a clean volume stays strict.
@Suite struct VolumeCopyTests {
    /// A volume in use, and a copy of it that grows file by file, as a tool makes it.
    fileprivate final class Copying {
        let original: VolumeHarness
        let target: String
        private let node: NodeID
        private let handle: HandleID

        init(_ data: [UInt8], pageBytes: Int = 4096) throws {
            original = try VolumeHarness(pageBytes: pageBytes)
            target = NSTemporaryDirectory() + "ward-copy-" + UUID().uuidString
            try FileManager.default.createDirectory(
                atPath: target, withIntermediateDirectories: true)
            (node, handle) = try original.create("file")
            try original.write(handle, 0, data)
        }

        /// The name of the only file in the backing directory.
        var stored: String {
            let names = try? FileManager.default.contentsOfDirectory(atPath: original.directory)
            return names!.first { !$0.contains(".") && $0 != "README" }!
        }

        func copy(_ name: String) throws {
            try? FileManager.default.removeItem(atPath: target + "/" + name)
            try FileManager.default.copyItem(
                atPath: original.directory + "/" + name, toPath: target + "/" + name)
        }

        func copyRoot() throws {
            for name in [".ward", "ward.state"] { try copy(name) }
        }

        /// The file's pages as they are now.
        func pages(_ range: Range<Int>) throws -> Data {
            let bytes = try Data(
                contentsOf: URL(fileURLWithPath: original.directory + "/" + stored))
            let size = original.parameters.pageBytes
            return bytes[range.lowerBound * size..<min(range.upperBound * size, bytes.count)]
        }

        func put(_ data: Data) throws {
            try data.write(to: URL(fileURLWithPath: target + "/" + stored))
        }

        func write(_ offset: Int, _ data: [UInt8]) throws {
            try original.write(handle, offset, data)
        }
        func shorten(to size: Int) throws { try original.setSize(node, handle, size) }

        /// Lets `epochs` epochs pass.
        func pass(epochs: Int) throws {
            for _ in 0..<epochs { try original.volume.durablePoint() }
        }

        func accept() throws {
            try Volume.acceptCopyInUse(
                backingPath: target, standing: original.volume.standing,
                volumeKey: original.volumeKey)
        }

        func standing() throws -> CopyStanding {
            try Volume.examineCopy(backingPath: target, volumeKey: original.volumeKey)
        }

        func open(isCopy: Bool = false) throws -> VolumeHarness {
            try VolumeHarness(copyOf: original, in: target, isCopy: isCopy)
        }

        deinit { try? FileManager.default.removeItem(atPath: target) }
    }

    private static func data(_ count: Int) -> [UInt8] {
        (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 7 &+ $0 / 256) }
    }

    private func content(_ harness: VolumeHarness) throws -> [UInt8] {
        let node = try harness.lookup("file").node
        defer { harness.volume.forget(node, lookups: 1) }
        let handle = try harness.open(node)
        defer { harness.volume.release(handle, harness.context) }
        return try harness.read(handle, 0, 1 << 20)
    }

    private func healed(_ harness: VolumeHarness) -> Int {
        harness.events.all.filter { if case .healed = $0 { true } else { false } }.count
    }

    /// The highest epoch in all pages of all files in a directory, authentic or not.
    private func highestEpoch(in directory: String, pageBytes: Int = 4096) throws -> UInt32 {
        var highest: UInt32 = 0
        for name in try FileManager.default.contentsOfDirectory(atPath: directory)
        where !name.contains(".") && name != "README" {
            let bytes = try Data(contentsOf: URL(fileURLWithPath: directory + "/" + name))
            let layout = PageLayout(pageBytes: pageBytes)
            for page in 0..<bytes.count / pageBytes {
                let epoch = bytes.withUnsafeBytes {
                    RecordPrefix(
                        reading: $0.baseAddress! + page * pageBytes
                            + layout.recordOffset(ofPage: page)
                    ).epoch
                }
                highest = max(highest, epoch)
            }
        }
        return highest
    }

    /// The ways in which a tool can copy a file that changes meanwhile.
    enum Tear: CaseIterable {
        /// The record first, the pages some epochs later, and the last page missing.
        case newPagesWithoutTheLast
        /// The last page with FINAL from before an append, then pages from after it.
        case finalInTheMiddle
        /// The file became shorter meanwhile: only old pages, and none with FINAL.
        case oldPagesOnly
        /// The same, filled with zeros up to the old size (tar).
        case oldPagesThenZeros
        /// A page that was not yet on the disk whose image the copy is.
        case zeroPage

        static let pageBytes = 4096
        static let full = 3804 + 4 * 4060

        /// Tears the copy. Returns the content that it must then have.
        fileprivate func make(_ copying: Copying) throws -> [UInt8] {
            let before = VolumeCopyTests.data(Tear.full + 1000)
            switch self {
            case .newPagesWithoutTheLast:
                try copying.copyRoot()
                try copying.pass(epochs: 9)
                let after = [UInt8](repeating: 9, count: before.count)
                try copying.write(0, after)
                try copying.put(copying.pages(0..<4))
                return Array(after[..<(3804 + 3 * 4060)])
            case .finalInTheMiddle:
                try copying.copyRoot()
                let old = try copying.pages(0..<6)
                try copying.pass(epochs: 9)
                try copying.write(before.count, VolumeCopyTests.data(8000))
                try copying.put(
                    old[0..<6 * Tear.pageBytes] + copying.pages(6..<8).prefix(2 * Tear.pageBytes))
                return before + [UInt8](repeating: 0, count: 4060 - 1000)
                    + VolumeCopyTests.data(8000)[(4060 - 1000)...]
            case .oldPagesOnly, .oldPagesThenZeros:
                var old = try copying.pages(0..<4)
                // Long before the copy ends: all its epochs are too old to be in doubt.
                try copying.pass(epochs: 9)
                try copying.shorten(to: 100)
                try copying.pass(epochs: 9)
                try copying.copyRoot()
                if self == .oldPagesThenZeros { old.append(Data(count: 2 * Tear.pageBytes)) }
                try copying.put(old)
                return Array(before[..<(3804 + 3 * 4060)])
            case .zeroPage:
                try copying.copyRoot()
                try copying.pass(epochs: 9)
                try copying.write(5000, [UInt8](repeating: 8, count: 5000))
                var bytes = try copying.pages(0..<6)
                bytes.replaceSubrange(
                    Tear.pageBytes..<2 * Tear.pageBytes, with: Data(count: Tear.pageBytes))
                try copying.put(bytes)
                var expected = before
                expected.replaceSubrange(
                    5000..<10_000, with: [UInt8](repeating: 8, count: 5000))
                expected.replaceSubrange(
                    3804..<7864, with: [UInt8](repeating: 0, count: 4060))
                return expected
            }
        }
    }

    @Test(
        "in use: accepted with an event, mended, and nothing is in doubt afterwards",
        arguments: Tear.allCases)
    func acceptedAndMended(tear: Tear) throws {
        let copying = try Copying(VolumeCopyTests.data(Tear.full + 1000))
        let expected = try tear.make(copying)
        #expect(try copying.standing() == .inUse)
        try copying.accept()
        #expect(try copying.standing() == .clean)
        let highest = try highestEpoch(in: copying.target)
        let copy = try copying.open()
        #expect(try content(copy) == expected)
        #expect(healed(copy) > 0, "with an event")
        copy.volume.mendDoubtfulFiles { false }
        #expect(copy.volume.durability.doubt.intervals.isEmpty)
        try copy.reopen()
        #expect(try content(copy) == expected, "mended")
        #expect(copy.events.integrityFailures.isEmpty)
        // The same damage once more, now that nothing is in doubt.
        let (node, handle) = try copy.create("later")
        try copy.write(handle, 0, [1, 2, 3])
        copy.volume.release(handle, copy.context)
        copy.volume.forget(node, lookups: 1)
        #expect(
            copy.volume.durability.epoch.load(ordering: .relaxed) > highest, "no epoch comes twice")
        try copy.reopen()
        let path = copying.target + "/" + copying.stored
        truncate(path, off_t(Tear.pageBytes))
        #expect(throws: Errno.ioError) { try content(copy) }
    }

    /// Why a copy must be accepted: an unclean end excuses two epochs, which is not enough for a
    /// copy.
    @Test(
        "without it, the rule for a power cut refuses them",
        arguments: [Tear.newPagesWithoutTheLast, .oldPagesOnly])
    func powerCutRule(tear: Tear) throws {
        let copying = try Copying(VolumeCopyTests.data(Tear.full + 1000))
        _ = try tear.make(copying)
        let copy = try copying.open()
        #expect(throws: Errno.ioError) { try content(copy) }
    }

    @Test(
        "put in the volume's place: the same, where the mount is told that it is a backup",
        arguments: Tear.allCases)
    func inPlace(tear: Tear) throws {
        let copying = try Copying(VolumeCopyTests.data(Tear.full + 1000))
        let expected = try tear.make(copying)
        let copy = try copying.open(isCopy: true)
        #expect(try content(copy) == expected)
        copy.volume.mendDoubtfulFiles { false }
        try copy.reopen()
        #expect(try content(copy) == expected)
        #expect(copy.events.integrityFailures.isEmpty)
    }

    @Test("a copy of a clean volume stays strict")
    func cleanStaysStrict() throws {
        for asBackup in [false, true] {
            let copying = try Copying(VolumeCopyTests.data(Tear.full + 1000))
            try copying.original.volume.close()
            try copying.copyRoot()
            try copying.put(copying.pages(0..<4))
            #expect(try copying.standing() == .clean)
            let copy = try copying.open(isCopy: asBackup)
            #expect(throws: Errno.ioError) { try content(copy) }
            #expect(healed(copy) == 0)
        }
    }

    @Test("a page that was changed is never accepted, copied in use or not")
    func tamperingIsSeen() throws {
        let copying = try Copying(VolumeCopyTests.data(Tear.full + 1000))
        try copying.copyRoot()
        var bytes = try copying.pages(0..<6)
        bytes[2 * Tear.pageBytes + 100] ^= 1
        try copying.put(bytes)
        try copying.accept()
        let copy = try copying.open()
        #expect(throws: Errno.ioError) { try content(copy) }
        #expect(!copy.events.integrityFailures.isEmpty)
    }

    @Test(
        "no state record, a damaged one, and one of another volume: unknown, until the owner says")
    func unknown() throws {
        for damage in ["missing", "damaged", "another's"] {
            let copying = try Copying(VolumeCopyTests.data(Tear.full + 1000))
            _ = try Tear.finalInTheMiddle.make(copying)
            let record = copying.target + "/ward.state"
            switch damage {
            case "missing": unlink(record)
            case "damaged": truncate(record, 30)
            default:
                let other = try VolumeHarness()
                try FileManager.default.removeItem(atPath: record)
                try FileManager.default.copyItem(
                    atPath: other.directory + "/ward.state", toPath: record)
            }
            guard case .unknown = try copying.standing() else {
                Issue.record("\(damage): \(try copying.standing())")
                continue
            }
            #expect(throws: VolumeOpenError.self, "\(damage)") { _ = try copying.open() }
            // The owner says what a missing record does not tell.
            let standing = try copying.standing()
            for (takesOlder, wanted) in [(false, FormatStanding(.version2)), (true, .upgrading)] {
                let found = Volume.format(
                    ofCopy: copying.target, standing, takesOlder: takesOlder)
                #expect(found == wanted, "\(damage)")
            }
            try copying.accept()
            let copy = try copying.open()
            #expect(copy.volume.standing == FormatStanding(.version2), "\(damage)")
            #expect(try content(copy).count > Tear.full, "\(damage)")
            #expect(
                copy.volume.durability.epoch.load(ordering: .relaxed)
                    > VolumeStateRecord.unknownEpoch)
        }
    }

    @Test("another key, or no root record: refused, and nothing is written")
    func notThisVolume() throws {
        let copying = try Copying(VolumeCopyTests.data(100))
        try copying.copyRoot()
        let key = try SecretBytes(random: 32)
        #expect(throws: VolumeOpenError.self) {
            _ = try Volume.examineCopy(backingPath: copying.target, volumeKey: key)
        }
        unlink(copying.target + "/.ward")
        var path = ""
        do throws(VolumeOpenError) {
            _ = try Volume.examineCopy(
                backingPath: copying.target, volumeKey: copying.original.volumeKey)
        } catch {
            path = error.path
        }
        #expect(path == copying.target + "/.ward")
    }

    @Test("every failed step leaves the old or the new record")
    func everyFailure() throws {
        var seen: Set<CopyStanding.Kind> = []
        for step in 0... {
            let copying = try Copying(VolumeCopyTests.data(100))
            try copying.copyRoot()
            let storage = FailingStorage()
            storage.failAfter(step, .noSpace)
            let isDone =
                (try? VolumeRoot.acceptCopyInUse(
                    copying.target, copying.original.volume.standing,
                    volumeKey: copying.original.volumeKey, storage: storage))
                != nil
            let standing = try copying.standing()
            #expect(standing == .inUse || standing == .clean)
            #expect(standing == .clean || !isDone)
            seen.insert(standing == .clean ? .new : .old)
            // Two more acceptances: one step of epochs in all, not three.
            try copying.accept()
            try copying.accept()
            let copy = try copying.open()
            #expect(
                copy.volume.durability.epoch.load(ordering: .relaxed) < 2
                    * VolumeStateRecord.copyStep)
            if !storage.hasFailed { break }
        }
        #expect(seen == [.old, .new])
    }

    @Test("the epochs never run out, however often a copy is adopted")
    func arithmetic() {
        var record = VolumeStateRecord(format: .version1, isInUse: true, epoch: 0, doubtful: [])
        for _ in 0..<5000 {
            let next = record.ofCopyInUse()
            #expect(!next.isInUse && next.doubtful == [0...next.epoch])
            #expect(next.epoch >= record.epoch && next.epoch < .max - 1)
            record = VolumeStateRecord(
                format: .version1, isInUse: true, epoch: next.epoch + 1, doubtful: [])
            if record.epoch > .max - 16 { break }
        }
    }
}

extension CopyStanding {
    fileprivate enum Kind { case old, new }
}
