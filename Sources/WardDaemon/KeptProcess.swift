import CWardLinux
import Glibc
import Synchronization
import WardSystem

/// A helper process that is wanted as long as the mount lives: a program of the same user may stop or kill it, and is not
/// to get rid of a lock that way. One that was stopped goes on, one that ended is replaced.
final class KeptProcess: Sendable {
    /// Between two of them that end at once.
    private static let pause = Duration.seconds(1)

    private struct State {
        var pid: pid_t
        var isStopping = false
        var thread: SystemThread?
    }

    private let start: @Sendable (Int32) -> pid_t?
    private let report: @Sendable (String) -> Void
    private let state: Mutex<State>
    private let stops = WakeDescriptor()
    /// Kept open as long as this process lives, and nothing is ever written: by its end the helper learns of our death.
    private let pipe: (reading: Int32, writing: Int32)

    /// `start` gives the number of a new process, nil where there can be none; it gets the descriptor to read from that ends
    /// with this process. `report` is told what happened to a process. The first is started by the calling thread, others by
    /// a thread that lives as long. Nil where the first can't be started.
    init?(
        _ name: String, start: @escaping @Sendable (Int32) -> pid_t?,
        report: @escaping @Sendable (String) -> Void
    ) {
        guard let pipe = try? Syscall.pipe() else { return nil }
        guard let pid = start(pipe.reading) else {
            Syscall.close(pipe.reading)
            Syscall.close(pipe.writing)
            return nil
        }
        self.pipe = (pipe.reading, pipe.writing)
        self.start = start
        self.report = report
        state = Mutex(State(pid: pid))
        // Without a thread it is not kept, and works all the same.
        let thread = try? SystemThread(name, { [unowned self] in keep() })
        state.withLock { $0.thread = thread }
    }

    /// Ends it, before the number of its connection can belong to another mount.
    func stop() {
        let thread = state.withLock { state in
            state.isStopping = true
            if state.pid > 0 { kill(state.pid, SIGKILL) }
            return state.thread.take()
        }
        stops.signal()
        thread?.join()
        let pid = state.withLock { $0.pid }
        if pid > 0 { OwnProgram.wait(for: pid) }
        Syscall.close(pipe.reading)
        Syscall.close(pipe.writing)
    }

    private func keep() {
        while true {
            let (pid, isStopping) = state.withLock { ($0.pid, $0.isStopping) }
            if isStopping { return }
            if pid <= 0 {
                if stops.wait(timeout: KeptProcess.pause) { return }
                replace()
            } else if hasEnded(pid) {
                // Its number stays taken until the state says that it is gone: `stop` may be about to kill it.
                let isOver = state.withLock { state in
                    if state.isStopping { return true }
                    OwnProgram.wait(for: pid)
                    state.pid = 0
                    return false
                }
                if isOver { return }
                report("process \(pid) has ended; another is started")
            }
        }
    }

    private func replace() {
        state.withLock { state in
            if !state.isStopping { state.pid = start(pipe.reading) ?? 0 }
        }
    }

    /// Waits until something happens to it: it ended, and is a zombie still; or it was stopped, and goes on.
    private func hasEnded(_ pid: pid_t) -> Bool {
        var information = siginfo_t()
        let found = waitid(P_PID, id_t(pid), &information, WEXITED | WSTOPPED | WNOWAIT)
        guard found == 0 else { return errno != EINTR }
        guard information.si_code == CLD_STOPPED || information.si_code == CLD_TRAPPED else {
            return true
        }
        _ = waitid(P_PID, id_t(pid), &information, WSTOPPED | WNOHANG)
        kill(pid, SIGCONT)
        return false
    }
}
