import CWardLinux
import Synchronization
import WardSystem

/// Runs what may hang, on a thread that is there beforehand: a program that uses up all the threads
/// or descriptors there can be must not hold up a lock.
///
/// Concurrency: `run` from one thread at a time.
final class StandbyThread: Sendable {
    private final class Worker: Sendable {
        let body = Mutex<(@Sendable () -> Void)?>(nil)
        let begins = WakeWord()
        let ends = WakeWord()
    }

    private struct State: Sendable {
        /// Has nothing to do; nil while the last one is at it, for ever perhaps.
        var idle: Worker?
        var isStopping = false
    }

    private let name: String
    private let state = Mutex(State())

    /// `name`: at most 15 bytes. Starts the first thread, which the program can't go on without.
    init(_ name: String) {
        self.name = name
        let worker = Worker()
        state.withLock { $0.idle = worker }
        SystemThread.start(name) { [self] in serve(worker) }.detach()
    }

    /// Runs `body`; false where it has not ended after `timeout`, or where the last one never came
    /// back and no other thread can be started. What is late goes on behind the caller's back.
    func run(timeout: Duration, _ body: @escaping @Sendable () -> Void) -> Bool {
        guard let worker = state.withLock({ $0.idle.take() }) ?? another() else { return false }
        worker.ends.clear()
        worker.body.withLock { $0 = body }
        worker.begins.signal()
        return worker.ends.wait(timeout: timeout)
    }

    /// The idle thread ends; one that is at it, when it comes back.
    func stop() {
        let worker = state.withLock { state in
            state.isStopping = true
            return state.idle.take()
        }
        worker?.begins.signal()
    }

    private func another() -> Worker? {
        let worker = Worker()
        guard let thread = try? SystemThread(name, { [self] in serve(worker) }) else { return nil }
        thread.detach()
        return worker
    }

    private func serve(_ worker: Worker) {
        while true {
            worker.begins.wait()
            guard let body = worker.body.withLock({ $0.take() }) else {
                if state.withLock({ $0.isStopping }) { return }
                continue
            }
            body()
            ward_scrub_thread()
            worker.ends.signal()
            let stays = state.withLock { state in
                guard state.idle == nil, !state.isStopping else { return false }
                state.idle = worker
                return true
            }
            if !stays { return }
        }
    }
}
