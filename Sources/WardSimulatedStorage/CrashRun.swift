import Glibc
import WardFormat
import WardSystem
import WardVolume

/// Runs random operations on a volume and cuts the power after every single call to the backing
/// store.
package final class CrashRun {
    let settings: CrashSettings
    let keys: CrashKeys
    let layout: PageLayout
    var random: SplitMix
    var cuts = SplitMix(seed: 0)
    var report = CrashReport()

    var volume: CrashVolume!
    var model: CrashModel
    var snapshots: [Snapshot] = []
    var label = "start"
    var position = Position()
    var kernel = KernelState()
    var isLocked = false

    /// The point that the run has reached.
    struct Position {
        /// The number of power cuts that the run went on from.
        var life = 0
        /// The operation of this life.
        var step = 0
        /// The calls to the backing store in this operation.
        var calls = 0
    }

    /// The kernel's knowledge of the volume.
    struct KernelState {
        /// Nodes, keyed by identity, with their look-up counts.
        var nodes: [UInt64: (node: NodeID, lookups: Int, key: CrashModel.Key)] = [:]
        /// Open files, the oldest first.
        var handles: [(identity: UInt64, handle: HandleID)] = []
    }

    /// The disk after a call, its expected content, and a name for that point.
    struct Snapshot {
        var image: DiskImage
        var model: CrashModel
        var place: String
        /// The seed for the power cuts at this point.
        var seed: UInt64
    }

    package init(_ settings: CrashSettings) {
        self.settings = settings
        keys = CrashKeys(pageBytes: settings.pageBytes, format: settings.format)
        layout = PageLayout(pageBytes: settings.pageBytes)
        random = SplitMix(seed: settings.seed)
        model = CrashModel(rootClass: .none)
    }

    /// Runs one seed. Stops at the first loss.
    package static func run(_ settings: CrashSettings) -> CrashReport {
        let run = CrashRun(settings)
        do {
            try run.run()
        } catch {
            run.lose("the harness: \(error)")
        }
        run.report.seeds = 1
        return run.report
    }

    func lose(_ what: String) {
        report.losses.append("\(settings.description), life \(position.life), \(what)")
    }

    func run() throws {
        let disk = SimulatedDisk(DiskImage(kind: settings.disk))
        let rootClass = random.pick([ProtectionClass.none, .completeUntilFirstUserAuthentication])
        try CrashVolume.create(keys, on: disk, defaultClass: rootClass)
        model = CrashModel(rootClass: rootClass)
        var image = disk.image
        for life in 0..<settings.lives {
            position.life = life
            try live(on: image)
            guard report.losses.isEmpty else { return }
            tryPowerCuts()
            guard report.losses.isEmpty else { return }
            // The next life goes on from one of the crash points.
            let snapshot = snapshots[random.below(snapshots.count)]
            cuts = SplitMix(seed: snapshot.seed &+ 1)
            image = snapshot.image.afterPowerCut(survival(), seed: cuts.next())
            guard let after = recover(image, snapshot.model, snapshot.place, depth: 1) else {
                return
            }
            model = after.model
            model.noteSizes(before: snapshot.model)
            image = after.image
        }
    }

    func survival() -> Survival {
        switch cuts.below(12) {
        case 0: .everything
        case 1: .onlyFlushed
        case 2: .namesWithoutData
        case 3: .dataWithoutNames
        case 4, 5: .wholeFiles
        default: .units
        }
    }

    // MARK: Operations

    func live(on image: DiskImage) throws {
        snapshots = []
        kernel = KernelState()
        isLocked = false
        let disk = SimulatedDisk(image)
        let listener = Listener(self)
        volume = try CrashVolume(keys, on: disk)
        disk.onChange { [unowned listener] image, name in listener.run.took(image, name) }
        for step in 0..<settings.operations {
            position.step = step
            position.calls = 0
            do {
                try operateOnDisk(disk)
            } catch {
                lose("\(label): \(error)")
            }
            report.operations += 1
            if settings.isTraced { print("\(position.life) \(step) \(label)") }
            let events = volume.events.problems
            if !events.isEmpty { lose("\(label): \(events.joined(separator: "; "))") }
            guard report.losses.isEmpty else { break }
            take(disk.image, "after \(step) \(label)")
        }
        disk.onChange(nil)
        for (_, handle) in kernel.handles { volume.release(handle) }
        forgetAll()
        if !disk.openFiles.isEmpty, report.losses.isEmpty {
            lose("these files stayed open: \(disk.openFiles)")
        }
        volume = nil
        withExtendedLifetime(listener) {}
    }

    final class Listener: @unchecked Sendable {
        // Sendable: used by one thread.
        let run: CrashRun
        init(_ run: CrashRun) { self.run = run }
    }

    func took(_ image: DiskImage, _ name: StaticString) {
        take(image, "\(position.step) \(label), \(name)")
    }

    func take(_ image: DiskImage, _ place: String) {
        position.calls += 1
        report.note(place)
        let number = position.life << 32 | position.step << 16 | position.calls
        var random = SplitMix(seed: settings.seed &* 1_000_003 &+ UInt64(number))
        snapshots.append(
            Snapshot(image: image, model: model, place: place, seed: random.next()))
    }

    func operate() throws {
        switch random.below(100) {
        case 0..<14: try createFile()
        case 14..<34: try writeFile()
        case 34..<42: try truncateFile()
        case 42..<46: try punchFile()
        case 46..<54: try renameSomething()
        case 54..<57: try linkFile()
        case 57..<62: try unlinkSomething()
        case 62..<67: try makeDirectory()
        case 67..<69: try removeDirectory()
        case 69..<71: try makeLink()
        case 71..<75: try setAttribute()
        case 75..<77: try setMode()
        case 77..<82: try setClass()
        case 82..<89: try syncFile()
        case 89..<91: try syncDirectory()
        case 91..<93: try random.chance(1, in: 3) ? syncClasses() : durablePoint()
        case 93..<95: try toggleLock()
        case 95..<96: try closeAndReopen()
        case 96..<97: try createUnnamed()
        default: closeOrForget()
        }
    }
}
