import Foundation
import Glibc
import Testing
import WardFormat
import WardSystem

@testable import WardSimulatedStorage
@testable import WardVolume

/// Changes every byte of a volume in turn (in a large file, random ones). The volume must answer
/// `EIO`, or leave the name out of a listing, and an event must name the file. Some bytes do not
/// matter (docs/format.md). With `WARD_TAMPER_ALL=1` it changes every bit of every byte, also with
/// pages of 4,096 bytes.
@Suite struct ByteFlipTests {
    private static let isThorough = getenv("WARD_TAMPER_ALL") != nil

    /// Bytes of files. With pages of 4,096 bytes: one byte in 13, and every byte that is not
    /// ciphertext.
    @Test(
        "every byte of every file",
        arguments: zip([512, 4096], [VolumeFormat.version2, .version1]))
    func contents(pageBytes: Int, format: VolumeFormat) throws {
        let tampered = try TamperedVolume(pageBytes: pageBytes, format: format)
        let disk = SimulatedDisk(tampered.clean)
        let volume = try CrashVolume(tampered.keys, on: disk)
        let pristine = disk.image
        var generator = SplitMix(seed: 7)
        var flips = 0
        for (path, entry) in tampered.truth.entries.sorted(by: { $0.key < $1.key })
        where mode_t(entry.mode) & S_IFMT == S_IFREG {
            guard path == names(tampered, entry.identity)[0] else { continue }
            let content = pristine.inodes[entry.identity]!.content
            for offset in 0..<content.size {
                let inPage = offset % pageBytes
                let isCiphertext = inPage > 300 && inPage < pageBytes - 20
                guard pageBytes == 512 || !isCiphertext || offset % 13 == 0 || Self.isThorough
                else { continue }
                let bits = Self.isThorough ? Array(UInt8(0)..<8) : [UInt8(generator.below(8))]
                for bit in bits {
                    disk.alter { $0.flip(entry.identity, offset, 1 << bit) }
                    volume.events.clear()
                    check(tampered, volume, path, entry, offset)
                    disk.alter { $0 = pristine }
                    flips += 1
                }
            }
        }
        // With the byte put back, everything is as before.
        let after = Sight(volume, expecting: tampered.truth)
        #expect(tampered.truth.compare(after, []).unseen == [])
        #expect(flips > 8000)
    }

    @Test(
        "bytes of a large file, by chance: EIO for that page, and every other one as it was",
        arguments: [512, 4096], [false, true])
    func largeFile(pageBytes: Int, hasHoles: Bool) throws {
        let harness = try VolumeHarness(pageBytes: pageBytes)
        let layout = PageLayout(pageBytes: pageBytes)
        let size = Self.isThorough ? 200 << 20 : 20 << 20
        let chunk = (0..<(1 << 18)).map { UInt8(truncatingIfNeeded: $0 &* 7) | 1 }
        let (_, handle) = try harness.create("large")
        for offset in stride(from: 0, to: size, by: hasHoles ? 3 * chunk.count : chunk.count) {
            try harness.write(handle, offset, chunk)
        }
        let inode = try harness.lookup("large").attributes.inode
        let end = Int(try harness.lookup("large").attributes.sizeBytes)
        let stored = try #require(
            try FileManager.default.contentsOfDirectory(atPath: harness.directory).first {
                var status = stat()
                return lstat(harness.directory + "/" + $0, &status) == 0
                    && UInt64(status.st_ino) == inode
            })
        let backing = try Syscall.openat(AT_FDCWD, harness.directory + "/" + stored, O_RDWR)
        defer { Syscall.close(backing) }

        func read(_ page: Int) throws(Errno) -> [UInt8] {
            let start = layout.start(ofPage: page)
            return try harness.read(handle, start, min(layout.capacity(ofPage: page), end - start))
        }
        func expected(_ page: Int) -> [UInt8] {
            let start = layout.start(ofPage: page)
            return (start..<min(start + layout.capacity(ofPage: page), end)).map {
                let number = $0 / chunk.count
                return hasHoles && number % 3 != 0 ? 0 : chunk[$0 % chunk.count]
            }
        }
        let pages = layout.pageCount(forSize: end)
        var generator = SplitMix(seed: UInt64(pageBytes))
        for _ in 0..<(Self.isThorough ? 3000 : 300) {
            let page = generator.below(pages)
            // The header of an open file is in memory, so its bytes on the disk don't count.
            let first = page == 0 ? FileHeader.bytes : 0
            let offset = page * pageBytes + first + generator.below(pageBytes - first)
            var byte: UInt8 = 0
            try #require(pread(backing, &byte, 1, offset) == 1)
            var changed = byte ^ (1 << UInt8(generator.below(8)))
            try #require(pwrite(backing, &changed, 1, offset) == 1)
            #expect(throws: Errno.ioError, "byte \(offset)") { try read(page) }
            for neighbour in [page - 1, page + 1] where neighbour >= 0 && neighbour < pages {
                #expect(try read(neighbour) == expected(neighbour), "byte \(offset)")
            }
            try #require(pwrite(backing, &byte, 1, offset) == 1)
            #expect(try read(page) == expected(page), "byte \(offset)")
        }
        harness.volume.release(handle, harness.context)
    }

    private func names(_ tampered: TamperedVolume, _ identity: UInt64) -> [String] {
        tampered.truth.entries.filter { $0.value.identity == identity }.map(\.key).sorted()
    }

    private func check(
        _ tampered: TamperedVolume, _ volume: CrashVolume, _ path: String, _ entry: Sight.Entry,
        _ offset: Int
    ) {
        var found = tampered.truth
        found.look(at: volume, path)
        let (unseen, seen) = tampered.truth.compare(found, volume.events.problems)
        #expect(unseen == [], "byte \(offset) of \(path)")
        let matters = tampered.matters(offset, of: entry.identity)
        #expect(
            seen.isEmpty == !matters,
            "byte \(offset) of \(path) \(matters ? "was changed and nobody saw it" : "matters")")
    }

    @Test(
        "every byte of every name, link target and attribute", arguments: [512],
        ByteFlipTests.isThorough ? VolumeFormat.allCases : [.ofNewVolumes])
    func metadata(pageBytes: Int, format: VolumeFormat) throws {
        let tampered = try TamperedVolume(pageBytes: pageBytes, format: format)
        let clean = tampered.clean
        var generator = SplitMix(seed: 11)
        var flips = 0
        for place in clean.places {
            let count = clean.count(of: place)
            for offset in 0..<count {
                let bits = Self.isThorough ? Array(UInt8(0)..<8) : [UInt8(generator.below(8))]
                for bit in bits {
                    var image = clean
                    guard image.flip(place, offset, 1 << bit) else { continue }
                    flips += 1
                    judge(
                        tampered, image, place, "bit \(bit) of byte \(offset) of \(place)",
                        isChecked: flips % 7 == 0 || Self.isThorough)
                }
            }
        }
        #expect(flips > 2000)
    }

    private func judge(
        _ tampered: TamperedVolume, _ image: DiskImage, _ place: DiskImage.Place, _ what: String,
        isChecked: Bool
    ) {
        let found: (sight: Sight, events: [String])
        do {
            found = try tampered.look(at: image)
        } catch let error as VolumeOpenError {
            #expect(
                error.path.hasSuffix("/.ward") || error.path.hasSuffix("/ward.state"), "\(what)")
            #expect(tampered.clean.isNeeded(place), "\(what): \(error)")
            return
        } catch {
            Issue.record("\(what): \(error)")
            return
        }
        #expect(!tampered.clean.isNeeded(place), "\(what): nobody saw it")
        var (unseen, seen) = tampered.truth.compare(found.sight, found.events)
        switch place {
        case .attributeName:
            // This equals the removal of an attribute, which is not detected (docs/threat-model.md
            // §10).
            unseen.removeAll { $0.contains("attribute") || $0.contains(": mode ") }
        case .attributeValue(_, BackingMode.attributeName):
            // A changed mode is not detected either.
            unseen.removeAll { $0.contains(": mode ") }
        default:
            #expect(!seen.isEmpty || place.isForPeople, "\(what): nobody saw it")
            if isChecked, !place.isForPeople {
                #expect(
                    (try? tampered.isFoundByCheck(image)) == true,
                    "\(what): the check did not find it")
                if place.isStoredName {
                    let after = try? tampered.repaired(image)
                    // The repair's report is a new file.
                    let differences = after.map { tampered.truth.compare($0, []).unseen }?
                        .filter { !$0.hasPrefix("/ward check now.txt is new") }
                    #expect(differences == [], "\(what): the name did not come back")
                }
            }
        }
        #expect(unseen == [], "\(what)")
    }
}
