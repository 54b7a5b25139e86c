import Dispatch
import Synchronization

/// Runs many seeds on several threads.
package enum CrashCampaign {
    /// Runs `settings` of each seed until no seed is left, `isOver` returns true, or
    /// `maximumLosses` is reached.
    package static func run(
        seeds: some Sequence<UInt64>, threads: Int, maximumLosses: Int = 1,
        settings: @escaping @Sendable (UInt64) -> CrashSettings,
        until isOver: @escaping @Sendable () -> Bool
    ) -> CrashReport {
        let waiting = Mutex(Array(seeds.reversed()))
        let total = Mutex(CrashReport())
        DispatchQueue.concurrentPerform(iterations: threads) { _ in
            while !isOver(), total.withLock({ $0.losses.count < maximumLosses }),
                let seed = waiting.withLock({ $0.popLast() })
            {
                let report = CrashRun.run(settings(seed))
                total.withLock { $0.add(report) }
            }
        }
        return total.withLock { $0 }
    }
}
