import CWardLinux
import Glibc
import Synchronization
import WardSystem

/// Looks once a second whether a program of the same user keeps this process or its helpers from
/// locking. That program may lower limits (prlimit(2)), or trace a helper (ptrace(2)), which stops
/// it without notice to its parent. Each finding raises an alarm.
///
/// This process can't be traced by its user, because it is not dumpable. Where it is stopped, the
/// watchdog wakes it.
final class ProcessGuard: Sendable {
    private static let interval = Duration.seconds(1)

    private let helpers: [KeptProcess]
    private let alarm: Alarm
    private let limits: Mutex<ProcessLimits?>
    private let stops = WakeWord()
    private let thread = Mutex<SystemThread?>(nil)

    init(_ helpers: [KeptProcess], alarm: Alarm) {
        self.helpers = helpers
        self.alarm = alarm
        limits = Mutex(ProcessLimits())
        let thread = SystemThread.start("ward-guard") { [unowned self] in
            while !stops.wait(timeout: ProcessGuard.interval) { look() }
        }
        self.thread.withLock { $0 = thread }
    }

    func stop() {
        stops.signal()
        let thread = thread.withLock { $0.take() }
        thread?.join()
    }

    private func look() {
        let lowered = limits.withLock { known -> String? in
            guard let now = ProcessLimits(), let before = known else { return nil }
            // Reports each lowered limit once.
            known = now
            return now.lowered(since: before)
        }
        if let lowered { alarm.raise(lowered) }
        for helper in helpers { helper.inspect() }
    }
}
