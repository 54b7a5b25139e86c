import CWardLinux
import Synchronization
import WardControl
import WardSystem

/// A thread that does one job after another; the number of waiting jobs is limited.
final class WorkQueue: Sendable {
    private struct State {
        var work: [@Sendable () -> Void] = []
        var isStopping = false
        var thread: SystemThread?
    }

    private let state = Mutex(State())
    private let wake = WakeWord()
    private let limit: Int

    init(_ name: String, limit: Int) {
        self.limit = limit
        let thread = SystemThread.start(name) { [unowned self] in run() }
        state.withLock { $0.thread = thread }
    }

    /// Adds a job. False where too many wait (not checked for `always`), or the queue has ended.
    @discardableResult
    func add(always: Bool = false, _ body: @escaping @Sendable () -> Void) -> Bool {
        let isTaken = state.withLock { state in
            guard !state.isStopping, always || state.work.count < limit else { return false }
            state.work.append(body)
            return true
        }
        wake.signal()
        return isTaken
    }

    /// Drops all waiting jobs.
    func discardWaiting() { state.withLock { $0.work = [] } }

    /// Does the waiting jobs and ends.
    func stop() {
        let thread = state.withLock { state in
            state.isStopping = true
            return state.thread.take()
        }
        wake.signal()
        thread?.join()
    }

    private func run() {
        while true {
            wake.wait()
            while let body = state.withLock({ $0.work.isEmpty ? nil : $0.work.removeFirst() }) {
                body()
            }
            ward_scrub_thread()
            if state.withLock({ $0.isStopping && $0.work.isEmpty }) { return }
        }
    }
}
