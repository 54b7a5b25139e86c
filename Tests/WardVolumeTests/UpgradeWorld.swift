import Glibc
import Synchronization
import Testing
import WardFormat
import WardSystem
import WardVolumeCheck

@testable import WardSimulatedStorage
@testable import WardVolume

/// A volume of format 1 with every kind of thing, on a simulated disk, and what a program sees.
struct UpgradeWorld {
    /// The content of the volume.
    enum Content: CaseIterable {
        /// Files of each class and size, marks, attributes.
        case features
        /// Files, directories and links with names in several directories, and ones that moved.
        case places
        /// Things that those two lack.
        case rest
    }

    let keys: CrashKeys
    /// After a clean end.
    let image: DiskImage
    let truth: Sight

    init(
        _ content: Content, pageBytes: Int = 4096, order: DiskKind.Order = .journal
    ) throws {
        keys = CrashKeys(pageBytes: pageBytes, format: .version1)
        let disk = SimulatedDisk(DiskImage(kind: DiskKind(order: order, atomicBytes: 4096)))
        try CrashVolume.create(keys, on: disk, defaultClass: .none)
        let volume = try CrashVolume(keys, on: disk)
        switch content {
        case .features: try TamperedVolume.fill(volume, PageLayout(pageBytes: pageBytes))
        case .places: try PlaceTests.fill(volume)
        case .rest: try UpgradeWorld.fillRest(volume)
        }
        try volume.volume.close()
        image = disk.image
        truth = try Sight(CrashVolume(keys, on: SimulatedDisk(image)))
    }

    /// The longest target that has room in a link of format 1, and none in one of format 2.
    static let longTarget = String(repeating: "t", count: 3040)

    private static func fillRest(_ volume: CrashVolume) throws {
        let (emptied, handle) = try volume.create("emptied", in: 1)
        try volume.setClass(emptied.node, .completeUnlessOpen)
        try volume.write(handle, 0, TamperedVolume.bytes(9000, 1))
        try volume.setAttribute(emptied.node, "user.note", [1, 2])
        try volume.setSize(emptied.node, handle, 0)
        volume.release(handle)
        var parent: NodeID = 1
        for depth in 0..<12 {
            parent = try volume.makeDirectory("deep \(depth)", in: parent).node
        }
        let (busy, busyHandle) = try volume.create("busy", in: parent)
        try volume.write(busyHandle, 0, TamperedVolume.bytes(100, 2))
        volume.release(busyHandle)
        try volume.setClass(busy.node, .completeUnlessOpen)
        let link = try volume.makeLink("border", in: parent, to: longTarget).node
        try volume.setAttribute(link, "trusted.note", [3, 4])
        _ = try volume.link(link, to: "border too", in: 1)
        _ = try volume.link(link, to: "border three", in: 1)
        _ = try Array("pipe".utf8).withUnsafeBytes {
            try volume.volume.makeNode(
                1, $0, mode: UInt32(S_IFIFO) | 0o644, device: 0, umask: 0,
                caller: CrashVolume.caller, volume.context)
        }
        try volume.setAttribute(try volume.lookup("pipe", in: 1).node, "trusted.note", [5])
    }

    // MARK: Upgrading

    static func begin(_ keys: CrashKeys, on disk: SimulatedDisk) throws {
        try Volume.beginUpgrade(
            backingPath: CrashVolume.path, volumeKey: try CrashKeys.secret(keys.volumeKey),
            storage: disk)
    }

    /// Runs the upgrade to its end. Returns the number of things that were carried over.
    @discardableResult
    static func upgrade(_ keys: CrashKeys, on disk: SimulatedDisk) throws -> Int {
        try begin(keys, on: disk)
        let volume = try CrashVolume(keys, on: disk)
        let report = try VolumeUpgrade(volume.volume, threads: 1).run()
        #expect(report.isDone && report.left == [], "\(report)")
        try volume.volume.close()
        return report.carriedOver
    }

    func upgraded() throws -> DiskImage {
        let disk = SimulatedDisk(image)
        try UpgradeWorld.upgrade(keys, on: disk)
        return disk.image
    }

    // MARK: Judging

    /// The differences between what a program sees now and the truth.
    func differences(_ image: DiskImage) throws -> [String] {
        try differences(CrashVolume(keys, on: SimulatedDisk(image)))
    }

    func differences(_ volume: CrashVolume) -> [String] {
        let found = Sight(volume, expecting: truth)
        return UpgradeWorld.differences(truth, found) + volume.events.problems
    }

    /// A link that was carried over is another inode, so identities may differ.
    static func differences(_ truth: Sight, _ found: Sight) -> [String] {
        var all = found.missing.map { "\($0.key): \($0.value)" }
        for path in Set(truth.entries.keys).union(found.entries.keys) {
            var (was, now) = (truth.entries[path], found.entries[path])
            for entry in [was, now] where entry == nil { all.append("\(path): \(entry as Any)") }
            was?.identity = 0
            now?.identity = 0
            // The size of a directory is that of the store.
            if mode_t(was?.mode ?? 0) & S_IFMT == S_IFDIR { was?.size = now?.size ?? 0 }
            if was != now { all.append("\(path): \(was as Any) became \(now as Any)") }
        }
        return all.sorted()
    }

    /// Whether `ward check` finds anything.
    static func findings(_ keys: CrashKeys, _ image: DiskImage) throws -> [String] {
        let volume = try CrashVolume(keys, on: SimulatedDisk(image))
        let report = VolumeCheck(volume.volume, repairs: false, name: "now", threads: 1).run()
        return report.findings.map { "\($0)" } + report.unreachable + report.foreign
    }

    /// Files and directories that still have a structure of format 1.
    static func remains(_ image: DiskImage) -> [UInt64] {
        var found: [UInt64] = []
        let magic = Array("WARDFILE".utf8)
        for inode in image.inodes.values where inode.links > 0 {
            if let record = inode.entries[Array(".ward".utf8)] {
                let target = String(decoding: image.inodes[record]!.target, as: UTF8.self)
                if Base64URL.decode(target)?.first != 3 { found.append(inode.identity) }
            }
            if inode.mode & S_IFMT == S_IFREG, inode.content.size >= FileHeader.bytes {
                let bytes = image.bytes(of: inode.identity)
                if bytes.starts(with: magic), bytes[8] != 2 { found.append(inode.identity) }
            }
        }
        return found.sorted()
    }

    /// A request to stop after some questions.
    final class Stop: Sendable {
        private let left: Atomic<Int>
        init(after count: Int) { left = Atomic(count) }
        var isDue: Bool { left.wrappingSubtract(1, ordering: .relaxed).oldValue <= 0 }
    }
}
