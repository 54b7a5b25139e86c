import CWardLinux
import Glibc
import Synchronization
import Testing
import WardFormat
import WardSystem
import WardVolumeCheck

@testable import WardVolume

/// An attacker made backing files as long as the store allows, in every way that costs no space.
/// Each walk over one ends after a bounded number of calls.
@Suite struct PlantedLengthTests {
    /// Fails after a number of calls, to end a walk that would not end.
    private final class LimitedStorage: PosixStorage, @unchecked Sendable {
        // Sendable: the added state is atomic.
        private let left = Atomic(0)
        /// False: SEEK_DATA is not supported, as on some network file systems, so everything is
        /// data.
        let tellsHoles: Bool

        init(tellsHoles: Bool = true) {
            self.tellsHoles = tellsHoles
            super.init()
        }

        func allow(_ calls: Int) { left.store(calls, ordering: .relaxed) }
        var isExhausted: Bool { left.load(ordering: .relaxed) < 0 }

        private func note() throws(Errno) {
            if left.subtract(1, ordering: .relaxed).newValue < 0 { throw .ioError }
        }

        override func pread(
            _ descriptor: Int32, _ buffer: UnsafeMutableRawPointer, _ count: Int, at offset: Int
        ) throws(Errno) -> Int {
            try note()
            return try super.pread(descriptor, buffer, count, at: offset)
        }

        override func pwrite(
            _ descriptor: Int32, _ buffer: UnsafeRawPointer, _ count: Int, at offset: Int
        ) throws(Errno) {
            try note()
            try super.pwrite(descriptor, buffer, count, at: offset)
        }

        override func lseek(
            _ descriptor: Int32, _ offset: Int, _ whence: Int32
        ) throws(Errno) -> Int {
            try note()
            guard tellsHoles else { throw .invalidArgument }
            return try super.lseek(descriptor, offset, whence)
        }

        override func fallocate(
            _ descriptor: Int32, mode: Int32, offsetBytes: Int, lengthBytes: Int
        ) throws(Errno) {
            guard tellsHoles || mode & FALLOC_FL_PUNCH_HOLE == 0 else { throw .notSupported }
            try super.fallocate(
                descriptor, mode: mode, offsetBytes: offsetBytes, lengthBytes: lengthBytes)
        }
    }

    /// The most calls for one walk: a search looks at 16,384 pages, and asks some hundred times for
    /// the next one.
    private static let mostCalls = 300_000

    /// A place, and the longest file of its file system.
    private static let places: [(path: String, longest: Int)] = {
        ["/tmp", "/dev/shm"].compactMap { path in
            let file = open(path, unnamedFlag | O_RDWR, 0o600)
            guard file >= 0 else { return nil }
            defer { close(file) }
            let lengths = [1 << 62, 1 << 44 - 4096, 1 << 40]
            return lengths.first { ftruncate(file, $0) == 0 }.map { (path, $0) }
        }
    }()

    private static let unnamedFlag: Int32 = 0o20_200_000

    enum Planting: String, CaseIterable {
        case zeroBlock = "a first page of zeros, and one block of them"
        case zeroBlocks = "a first page of zeros, and blocks of them far from each other"
        case farData = "a first page of zeros, and data at the end"
        case manyZeros = "a first page of zeros, and 20,000 more"
        case longTail = "a good file with a long hole behind it"
        case longTailOfZeros = "a good file with 20,000 pages of zeros behind it"
        case farGarbage = "a good file with another last page at the end"
        case farOwnPage = "a good file with a page of its own at the end"
        case sparseGarbage = "a good sparse file with another last page at the end"
        case badHeader = "a damaged header, and another last page at the end"

        var isSparse: Bool { self == .sparseGarbage }
        /// Plantings that are the same as others on a store that does not tell holes from zeros.
        var isLikeOthers: Bool { ![.zeroBlock, .longTail, .farGarbage].contains(self) }
        var hasManyZeros: Bool { self == .manyZeros || self == .longTailOfZeros }

        /// Changes the backing file of a good file with five pages.
        func plant(_ file: Int32, pageBytes: Int, length: Int) {
            let end = length / 4096 * 4096 - pageBytes
            func write(_ value: UInt8, _ offset: Int) {
                let page = [UInt8](repeating: value, count: pageBytes)
                #expect(Glibc.pwrite(file, page, pageBytes, offset) == pageBytes)
            }
            switch self {
            case .zeroBlock, .zeroBlocks, .farData, .manyZeros:
                ftruncate(file, 0)
                write(0, 4096)
            case .badHeader: write(7, 0)
            default: break
            }
            ftruncate(file, length)
            switch self {
            case .zeroBlock, .longTail: break
            case .zeroBlocks: for shift in stride(from: 13, to: 43, by: 2) { write(0, 1 << shift) }
            case .farData, .farGarbage, .sparseGarbage, .badHeader: write(7, end)
            case .farOwnPage:
                var page = [UInt8](repeating: 0, count: pageBytes)
                #expect(Glibc.pread(file, &page, pageBytes, pageBytes) == pageBytes)
                #expect(Glibc.pwrite(file, page, pageBytes, end) == pageBytes)
            case .manyZeros, .longTailOfZeros:
                let zeros = [UInt8](repeating: 0, count: 20_000 * pageBytes)
                #expect(Glibc.pwrite(file, zeros, zeros.count, 10 * pageBytes) == zeros.count)
            }
        }
    }

    private enum Walk: String, CaseIterable {
        case size, look, openAndRead, append, truncate, empty, grow, punch, strongerClass, remove
    }

    private func run(_ walk: Walk, _ name: String, _ harness: VolumeHarness) throws(Errno) {
        let node = try harness.lookup(name).node
        defer { harness.volume.forget(node, lookups: 1) }
        func withFile(_ body: (HandleID) throws(Errno) -> Void) throws(Errno) {
            let handle = try harness.open(node)
            defer { harness.volume.release(handle, harness.context) }
            try body(handle)
        }
        switch walk {
        case .size: _ = try harness.size(node)
        case .look:
            try withFile { file throws(Errno) in
                for (offset, whence) in [(0, SEEK_DATA), (0, SEEK_HOLE), (1 << 40, SEEK_DATA)] {
                    _ = try? harness.volume.seek(
                        file, offsetBytes: UInt64(offset), whence: whence, caller: harness.caller,
                        harness.context)
                }
            }
        case .openAndRead:
            try withFile { file throws(Errno) in
                let size = try harness.size(node)
                for offset in [0, 10_000, size / 2, size - 100] {
                    _ = try? harness.read(file, max(0, offset), 1 << 17)
                }
            }
        case .append:
            try withFile { file throws(Errno) in
                try harness.write(file, try harness.size(node), [1, 2, 3])
            }
        case .truncate: try harness.setSize(node, nil, 10)
        case .empty: try harness.setSize(node, nil, 0)
        case .grow: try harness.setSize(node, nil, try harness.size(node) + 100_000)
        case .punch:
            try withFile { file throws(Errno) in
                try harness.volume.allocate(
                    file, mode: FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offsetBytes: 1000,
                    lengthBytes: 1 << 61, caller: harness.caller, harness.context)
            }
        case .strongerClass: try harness.setClass(node, "A")
        case .remove:
            try harness.withName(name) { name throws(Errno) in
                try harness.volume.unlink(1, name, caller: harness.caller, harness.context)
            }
        }
    }

    /// A volume in which each walk has a file of its own, planted after the mount.
    private func plantedVolume(
        _ planting: Planting, _ place: (path: String, longest: Int), pageBytes: Int, inDoubt: Bool,
        _ storage: LimitedStorage
    ) throws -> (harness: VolumeHarness, files: [String]) {
        storage.allow(.max)
        let harness = try VolumeHarness(pageBytes: pageBytes, storage: storage, below: place.path)
        let files = Walk.allCases.map(\.rawValue) + ["left", "other"]
        var inodes: [String: UInt64] = [:]
        for name in files {
            let (node, file) = try harness.create(name)
            try harness.write(file, 0, [UInt8](repeating: 3, count: 5 * pageBytes))
            if planting.isSparse {
                try harness.setSize(node, file, 30 * pageBytes)
                try harness.write(file, 30 * pageBytes, [1])
            }
            inodes[name] = harness.volume.node(node).inode
            harness.volume.release(file, harness.context)
            harness.volume.forget(node, lookups: 1)
        }
        try harness.reopen(clean: !inDoubt, storage: storage)
        let paths = try backingPaths(harness.directory)
        for name in files.dropLast() {
            let file = open(paths[inodes[name]!]!, O_RDWR)
            defer { close(file) }
            planting.plant(file, pageBytes: pageBytes, length: place.longest)
        }
        return (harness, Array(files.dropLast()))
    }

    private func backingPaths(_ directory: String) throws -> [UInt64: String] {
        var paths: [UInt64: String] = [:]
        let opened = try OwnedDescriptor(opening: directory, O_RDONLY | O_DIRECTORY)
        for name in try DirectoryReading.names(in: opened.rawValue) {
            let path = directory + "/" + String(decoding: name, as: UTF8.self)
            var status = stat()
            if lstat(path, &status) == 0 { paths[UInt64(status.st_ino)] = path }
        }
        return paths
    }

    @Test(
        "Requests about a planted file, and a check and a mending of it, end soon",
        arguments: Planting.allCases, [false, true])
    func everyWalkEnds(planting: Planting, inDoubt: Bool) throws {
        try #require(!Self.places.isEmpty)
        // Zeros are data on every file system, and 20,000 pages of them take seconds: one place is
        // enough.
        for place in planting.hasManyZeros ? Self.places.prefix(1) : Self.places[...] {
            for (pageBytes, tellsHoles) in [(4096, true), (512, true), (512, false)] {
                // Blocks of zeros need space, so they are planted only with small pages.
                if planting.hasManyZeros, pageBytes == 4096 { continue }
                if !tellsHoles, place.path != Self.places[0].path || planting.isLikeOthers {
                    continue
                }
                let what = "\(planting.rawValue), \(place.path), \(pageBytes), \(tellsHoles)"
                let storage = LimitedStorage(tellsHoles: tellsHoles)
                let (harness, files) = try plantedVolume(
                    planting, place, pageBytes: pageBytes, inDoubt: inDoubt, storage)
                for walk in Walk.allCases {
                    storage.allow(Self.mostCalls)
                    do throws(Errno) {
                        try run(walk, walk.rawValue, harness)
                    } catch {
                        #expect(
                            [.ioError, .fileTooLarge, .noSpace].contains(error),
                            "\(what): \(walk): \(error)")
                    }
                    #expect(!storage.isExhausted, "\(what): \(walk)")
                }
                storage.allow(Self.mostCalls * files.count)
                harness.volume.mendDoubtfulFiles { false }
                #expect(!storage.isExhausted, "\(what): mending")
                for repairs in [false, true] {
                    storage.allow(Self.mostCalls * files.count)
                    let report = VolumeCheck(
                        harness.volume, repairs: repairs, name: "now", threads: 1
                    ).run()
                    #expect(!storage.isExhausted, "\(what): check, repairs: \(repairs)")
                    #expect(report.progress.files >= files.count, "\(what)")
                }
                storage.allow(.max)
                let other = try harness.open(try harness.lookup("other").node)
                #expect(try harness.read(other, 0, 3) == [3, 3, 3], "\(what)")
                harness.volume.release(other, harness.context)
                try harness.volume.close()
            }
        }
    }

    @Test("Zeros without end behind a first page of zeros: EIO, and an event that says so")
    func endlessZeros() throws {
        for place in Self.places {
            let storage = LimitedStorage()
            let (harness, _) = try plantedVolume(
                .manyZeros, place, pageBytes: 512, inDoubt: false, storage)
            let node = try harness.lookup("left").node
            #expect(throws: Errno.ioError) { _ = try harness.open(node) }
            #expect(
                harness.events.integrityFailures.contains {
                    $0.hasPrefix("/left: ") && $0.contains("too many zero pages")
                }, "\(harness.events.integrityFailures)")
        }
    }

    @Test("A sparse image whose first page a power cut took is an empty file, soon, as ever")
    func honestImage() throws {
        for place in Self.places {
            let storage = LimitedStorage()
            storage.allow(.max)
            let harness = try VolumeHarness(storage: storage, below: place.path)
            let (node, file) = try harness.create("image")
            try harness.setSize(node, file, 1 << 39)
            for shift in stride(from: 16, to: 38, by: 1) {
                try harness.write(file, 1 << shift, [UInt8](repeating: 5, count: 70_000))
            }
            let inode = harness.volume.node(node).inode
            harness.volume.release(file, harness.context)
            harness.volume.forget(node, lookups: 1)
            try harness.reopen(clean: false, storage: storage)
            let path = try #require(try backingPaths(harness.directory)[inode])
            let backing = try OwnedDescriptor(opening: path, O_RDWR)
            try Syscall.pwrite(backing.rawValue, [UInt8](repeating: 0, count: 4096), 4096, at: 0)
            storage.allow(2000)
            let found = try harness.lookup("image").node
            #expect(try harness.size(found) == 0)
            #expect(!storage.isExhausted)
            #expect(harness.events.integrityFailures.isEmpty)
            storage.allow(.max)
        }
    }
}
