import WardFormat

/// The disk, page size, operations and power cuts of one seed. Everything follows from the seed.
package struct CrashSettings: Sendable {
    package var seed: UInt64
    package var disk: DiskKind
    package var pageBytes: Int
    package var format = VolumeFormat.version1
    /// Operations in each life of the volume, between one power cut and the next.
    package var operations = 60
    package var lives = 3
    /// Tries one in this many crash points.
    package var stride = 1
    /// Makes calls of the backing store fail now and then.
    package var injectsErrors = false
    /// Prints each operation.
    package var isTraced = false

    package init(seed: UInt64, disk: DiskKind, pageBytes: Int) {
        self.seed = seed
        self.disk = disk
        self.pageBytes = pageBytes
    }

    /// The disks that the format promises to survive (docs/durability.md, "Which disks"): every
    /// disk that does not tear a page.
    package static func promised(seed: UInt64) -> CrashSettings {
        let (atomicBytes, pageBytes) = [(4096, 4096), (512, 512), (4096, 512)][Int(seed / 4 % 3)]
        var settings = CrashSettings(
            seed: seed,
            disk: DiskKind(order: seed % 4 == 3 ? .posix : .journal, atomicBytes: atomicBytes),
            pageBytes: pageBytes)
        settings.injectsErrors = seed / 24 % 2 == 1
        if seed / 12 % 2 == 1 { settings.format = .version2 }
        return settings
    }

    package var description: String {
        "seed \(seed): \(disk.order.rawValue), units of \(disk.atomicBytes), pages of \(pageBytes)"
            + ", format \(format.rawValue)"
            + (injectsErrors ? ", with errors" : "")
    }
}

/// The counts and losses of runs.
package struct CrashReport: Sendable {
    /// Crash points: each is a power cut, a recovery and a full comparison.
    package var points = 0
    package var operations = 0
    package var seeds = 0
    /// Operations in which a call to the backing store failed.
    package var failures = 0
    package var healed = 0
    package var losses: [String] = []
    /// A digest of all calls and operations: the same for the same seeds.
    package private(set) var digest: UInt64 = 0

    package init() {}

    /// Adds a text to the digest with FNV-1a (Fowler, Noll, Vo).
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
