import CWardLinux
import Glibc
import Synchronization
import WardSystem

/// Looks once a second whether a program of the same user keeps this process or its helpers from
/// locking: by limits (prlimit(2)), or by tracing a helper (ptrace(2)), which stops it without a
/// word to its parent. Each finding is an alarm.
///
/// This process itself can't be traced by its user: it is not dumpable. Where it is stopped the
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
            // Each is told once.
            known = now
            return now.lowered(since: before)
        }
        if let lowered { alarm.raise(lowered) }
        for helper in helpers { helper.inspect() }
    }
}
