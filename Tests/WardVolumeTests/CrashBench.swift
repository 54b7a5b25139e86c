import WardFormat
import WardSimulatedStorage
import WardSystem
import WardVolume

/// A volume on a disk of its own, with one file of a few pages, all of it durable.
struct CrashBench {
    static let disk = DiskKind(order: .journal, atomicBytes: 4096)
    static let caller = Caller(uid: 0, gid: 0, pid: 0)

    let keys: CrashKeys
    let disk: SimulatedDisk
    let volume: CrashVolume
    let layout: PageLayout
    let node: NodeID
    let handle: HandleID
    let content: [UInt8]

    init(
        pageBytes: Int = 4096, pages: Int = 3, _ kind: DiskKind = CrashBench.disk,
        format: VolumeFormat = .ofNewVolumes
    ) throws {
        keys = CrashKeys(pageBytes: pageBytes, format: format)
        layout = PageLayout(pageBytes: pageBytes)
        disk = SimulatedDisk(DiskImage(kind: kind))
        try CrashVolume.create(keys, on: disk, defaultClass: .none)
        volume = try CrashVolume(keys, on: disk)
        let (entry, handle) = try volume.create("file", in: 1)
        node = entry.node
        self.handle = handle
        content = (0..<(layout.start(ofPage: pages - 1) + 100)).map {
            UInt8(truncatingIfNeeded: $0 &* 7) | 1
        }
        try volume.write(handle, 0, content)
        try volume.volume.durablePoint()
    }

    /// Cuts the power at every call of `body`, with each survival and seed, and has `judge` look at
    /// the volume then.
    func crash(
        _ survivals: [Survival] = Survival.allCases, seeds: UInt64 = 12,
        _ body: () throws -> Void,
        _ judge: (CrashVolume, String) throws -> Void
    ) throws {
        let images = Images()
        disk.onChange { image, name in images.all.append((image, "\(name)")) }
        try body()
        disk.onChange(nil)
        images.all.append((disk.image, "end"))
        for (image, name) in images.all {
            for survival in survivals {
                for seed in 0..<seeds {
                    let left = SimulatedDisk(image.afterPowerCut(survival, seed: seed))
                    let place = "after \(name): \(survival), seed \(seed)"
                    let recovered = try CrashVolume(keys, on: left)
                    try judge(recovered, place)
                }
            }
        }
    }

    static func content(_ volume: CrashVolume, _ name: String = "file") throws -> [UInt8] {
        let entry = try volume.lookup(name, in: 1)
        defer { volume.forget(entry.node) }
        let handle = try volume.open(entry.node)
        defer { volume.release(handle) }
        return try volume.read(handle)
    }
}

private final class Images: @unchecked Sendable {
    // Sendable: used by one thread.
    var all: [(DiskImage, String)] = []
}
