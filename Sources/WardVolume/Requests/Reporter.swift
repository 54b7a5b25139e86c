import Synchronization
import WardSystem

/// Tells the observer what happens in the volume, each thing once.
///
/// Concurrency: any thread; the mutex of `toldNames` guards the names.
final class Reporter: Sendable {
    private static let mostNames = 1000

    private let observer: (any VolumeObserver)?
    /// Accepted writes that could not be stored.
    let losses = LossList()
    /// Foreign names that were reported.
    private let toldNames = Mutex<Set<[UInt8]>>([])
    /// True after the report that no descriptor was left, not even one that was kept for later.
    private let hasToldOfDescriptors = Atomic(false)

    init(_ observer: (any VolumeObserver)?) { self.observer = observer }

    func report(_ event: VolumeEvent) {
        if case .lost(let path, let reason) = event, !losses.add(path, reason) { return }
        observer?.volumeReports(event)
    }

    /// Whether this foreign name is new here, and is to be reported.
    func isNew(foreign name: [UInt8]) -> Bool {
        toldNames.withLock { names in
            names.count < Reporter.mostNames && names.insert(name).inserted
        }
    }

    /// Reports that no descriptor is left. Once, until `noteDescriptors`.
    func reportNoDescriptors() {
        guard !hasToldOfDescriptors.exchange(true, ordering: .relaxed) else { return }
        report(
            .note(
                "programs hold so many files of this volume open that no more can be opened: "
                    + "the daemon's limit of open files is used up (RLIMIT_NOFILE)"))
    }

    /// Notes that there are descriptors again.
    func noteDescriptors() { hasToldOfDescriptors.store(false, ordering: .relaxed) }
}
