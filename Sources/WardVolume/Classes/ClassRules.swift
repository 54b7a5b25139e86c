import Synchronization
import WardCrypto
import WardFormat
import WardSystem

/// The facts of this mount on which the rules of classes depend. These are marks of synchronised
/// directories, and the sign of classes that were set without a sync.
///
/// Concurrency: any thread; all of it is constant or atomic.
final class ClassRules: Sendable {
    /// How many directories may wait to be looked through.
    static let mostArrivals = 64

    /// True if this mount has seen a directory that is marked as synchronised. Until then no
    /// request looks for marks.
    let hasMarks: Atomic<Bool>
    /// Prefix of this mount's `classSyncMark`. No other mount has the same.
    let syncMarkStart = Volume.classSyncWord + Base64URL.encode(SystemRandom.bytes(9)) + " "
    /// Looks through directories that were moved into a marked directory.
    private let arrivals = SerialQueue("ward-sync")
    private let waiting = Atomic<Int>(0)

    init(hasMarks: Bool) { self.hasMarks = Atomic(hasMarks) }

    /// Runs `job`, which looks through a directory, on a thread of its own. False where too many
    /// wait.
    func addArrival(_ job: @escaping @Sendable () -> Void) -> Bool {
        guard waiting.load(ordering: .relaxed) < ClassRules.mostArrivals else { return false }
        waiting.add(1, ordering: .relaxed)
        arrivals.add { [self] in
            defer { waiting.subtract(1, ordering: .relaxed) }
            job()
        }
        return true
    }

    /// True while no directory waits and none is looked through.
    var isIdle: Bool { waiting.load(ordering: .sequentiallyConsistent) == 0 }
}
