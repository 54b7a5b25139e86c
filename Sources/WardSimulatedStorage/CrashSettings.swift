import WardFormat

/// What one seed does: which disk, which pages, which operations, which power cuts. Everything
/// follows from the seed.
package struct CrashSettings: Sendable {
    package var seed: UInt64
    package var disk: DiskKind
    package var pageBytes: Int
    /// Operations in each life of the volume, between one power cut and the next.
    package var operations = 60
    package var lives = 3
    /// Of the places where the power may go, one in this many is tried.
    package var stride = 1
    /// Calls of the store fail now and then.
    package var injectsErrors = false
    /// Prints what is done.
    package var isTraced = false

    package init(seed: UInt64, disk: DiskKind, pageBytes: Int) {
        self.seed = seed
        self.disk = disk
        self.pageBytes = pageBytes
    }

    /// What the format promises to survive (docs/format.md §8): every disk that does not tear a
    /// page.
    package static func promised(seed: UInt64) -> CrashSettings {
        let (atomicBytes, pageBytes) = [(4096, 4096), (512, 512), (4096, 512)][Int(seed / 4 % 3)]
        var settings = CrashSettings(
            seed: seed,
            disk: DiskKind(order: seed % 4 == 3 ? .posix : .journal, atomicBytes: atomicBytes),
            pageBytes: pageBytes)
        settings.injectsErrors = seed / 24 % 2 == 1
        return settings
    }

    package var description: String {
        "seed \(seed): \(disk.order.rawValue), units of \(disk.atomicBytes), pages of \(pageBytes)"
            + (injectsErrors ? ", with errors" : "")
    }
}

/// What came of it.
package struct CrashReport: Sendable {
    /// A power cut, a recovery and a comparison of everything.
    package var points = 0
    package var operations = 0
    package var seeds = 0
    /// Operations of which a call to the store failed.
    package var failures = 0
    package var healed = 0
    package var losses: [String] = []
    /// Of everything that was done, call by call: the same for the same seeds.
    package private(set) var digest: UInt64 = 0

    package init() {}

    /// FNV-1a (Fowler, Noll, Vo) over what was done.
    mutating func note(_ text: String) {
        for byte in text.utf8 { digest = (digest ^ UInt64(byte)) &* 0x100_0000_01B3 }
    }

    package mutating func add(_ other: CrashReport) {
        points += other.points
        operations += other.operations
        seeds += other.seeds
        failures += other.failures
        healed += other.healed
        losses += other.losses
        digest ^= other.digest
    }
}
