import Synchronization

/// Notes when trusted hosts were ended, so that a host that is about to connect is refused.
///
/// Concurrency: any thread.
final class HostEndings: Sendable {
    private let endings = Atomic(0)
    private let endedAll = Mutex<Duration?>(nil)

    /// Counts how often all hosts, or those of one record, were ended. A host that began to connect
    /// before the last change is refused.
    var count: Int { endings.load(ordering: .sequentiallyConsistent) }

    /// When a lock last ended all hosts, on the clock of grace periods.
    var lastOfAll: Duration? { endedAll.withLock { $0 } }

    func note() { endings.add(1, ordering: .sequentiallyConsistent) }

    func noteAll(at now: Duration) {
        note()
        endedAll.withLock { $0 = now }
    }
}
