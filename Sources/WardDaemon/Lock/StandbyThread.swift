import CWardLinux
import Synchronization
import WardSystem

/// Runs work that may hang, on a thread that is started beforehand. So a program that uses up all
/// threads or descriptors can't delay a lock.
///
/// Concurrency: one thread at a time may call `run`.
final class StandbyThread: Sendable {
    private final class Worker: Sendable {
        let body = Mutex<(@Sendable () -> Void)?>(nil)
        let begins = WakeWord()
        let ends = WakeWord()
    }

    private struct State: Sendable {
        /// The worker without work; nil while the last one works, possibly for ever.
        var idle: Worker?
        var isStopping = false
    }

    private let name: String
    private let state = Mutex(State())

    /// Starts the first thread; the daemon can't go on without it. `name` has at most 15 bytes.
    init(_ name: String) {
        self.name = name
        let worker = Worker()
        state.withLock { $0.idle = worker }
        SystemThread.start(name) { [self] in serve(worker) }.detach()
    }

    /// Runs `body`. False where it did not end within `timeout`, or where the last one never came
    /// back and no other thread can be started. A late `body` goes on in the background.
    func run(timeout: Duration, _ body: @escaping @Sendable () -> Void) -> Bool {
        guard let worker = state.withLock({ $0.idle.take() }) ?? another() else { return false }
        worker.ends.clear()
        worker.body.withLock { $0 = body }
        worker.begins.signal()
        return worker.ends.wait(timeout: timeout)
    }

    /// Ends the idle thread; a thread at work ends after its work.
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
