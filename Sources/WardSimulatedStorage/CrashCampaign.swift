import Dispatch
import Synchronization

/// Many runs side by side.
package enum CrashCampaign {
    /// Runs what `settings` gives for each seed, until there are none left, `isOver` says so, or
    /// too much was lost.
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
