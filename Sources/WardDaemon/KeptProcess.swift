import CWardLinux
import Glibc
import Synchronization
import WardSystem

/// A helper process that is wanted as long as the mount lives: a program of the same user may stop,
/// trace or kill it, and is not to get rid of a lock that way. A helper that was stopped goes on; a
/// helper that was killed, is traced, or had its limits lowered, is replaced, and that is an alarm.
final class KeptProcess: Sendable {
    /// Between two of them that end at once.
    private static let pause = Duration.seconds(1)
    /// Stops within a second that are taken for an attack.
    private static let stopsTolerated = 3

    private struct State {
        var pid: pid_t
        var isStopping = false
        var thread: SystemThread?
        /// When the last one was started, monotonic.
        var started = SystemClock.monotonic()
        var limits: ProcessLimits?
        /// Monotonic times of stops, not older than a second.
        var stops: [Duration] = []
        /// Killed while somebody traced them: they can't be waited for before their tracer lets go.
        var abandoned: [pid_t] = []

        /// Does without the present one, whose end its tracer keeps to itself.
        mutating func abandon() {
            kill(pid, SIGKILL)
            abandoned.append(pid)
            pid = 0
        }
    }

    private let name: String
    private let what: String
    private let start: @Sendable (Int32) -> pid_t?
    private let report: @Sendable (String) -> Void
    private let alarm: Alarm
    private let state: Mutex<State>
    private let stops = WakeWord()
    /// Kept open as long as this process lives, and nothing is ever written: by its end the helper
    /// learns of our death.
    private let pipe: (reading: Int32, writing: Int32)

    /// `start` gives the number of a new process, nil where there can be none; it gets the
    /// descriptor to read from that ends with this process. `report` is told what happened to a
    /// process. The first is started by the calling thread, others by a thread that lives as long.
    /// Nil where the first can't be started. `what`: its name in messages.
    init?(
        _ name: String, _ what: String, alarm: Alarm,
        start: @escaping @Sendable (Int32) -> pid_t?,
        report: @escaping @Sendable (String) -> Void
    ) {
        guard let pipe = try? Syscall.pipe() else { return nil }
        guard let pid = start(pipe.reading) else {
            Syscall.close(pipe.reading)
            Syscall.close(pipe.writing)
            return nil
        }
        self.pipe = (pipe.reading, pipe.writing)
        self.name = name
        self.what = what
        self.start = start
        self.report = report
        self.alarm = alarm
        state = Mutex(State(pid: pid, limits: ProcessLimits(of: pid)))
        // Without a thread it is not kept, and works all the same.
        let thread = try? SystemThread(name, { [self] in keep() })
        state.withLock { $0.thread = thread }
    }

    /// Ends it, before the number of its connection can belong to another mount.
    func stop() {
        let (thread, pid) = state.withLock { state in
            state.isStopping = true
            if state.pid > 0 { kill(state.pid, SIGKILL) }
            return (state.thread.take(), state.pid)
        }
        stops.signal()
        // The end of a process that is traced is told to nobody but its tracer.
        if pid > 0, KeptProcess.tracer(of: pid) != nil {
            thread?.detach()
            return
        }
        thread?.join()
        let last = state.withLock { $0.pid }
        if last > 0 { OwnProgram.wait(for: last) }
        Syscall.close(pipe.reading)
        Syscall.close(pipe.writing)
    }

    /// Kills it where it is traced or its limits were lowered; then it is replaced. For the guard's
    /// thread.
    func inspect() {
        let why = state.withLock { state -> String? in
            state.abandoned.removeAll { waitpid($0, nil, WNOHANG) != 0 }
            guard state.pid > 0, !state.isStopping else { return nil }
            let pid = state.pid
            if let tracer = KeptProcess.tracer(of: pid) {
                state.abandon()
                // The present thread waits for that one's end.
                state.thread?.detach()
                state.thread = try? SystemThread(name, { [self] in keep() })
                return "process \(pid) is traced by process \(tracer)"
            }
            guard let before = state.limits, let now = ProcessLimits(of: pid),
                let lowered = now.lowered(since: before)
            else { return nil }
            kill(pid, SIGKILL)
            return "of process \(pid): \(lowered)"
        }
        if let why { alarm.raise("\(what): \(why)") }
    }

    /// The process that traces another, `TracerPid` of proc_pid_status(5); nil where there is none
    /// or that can't be read.
    private static func tracer(of pid: pid_t) -> Int? {
        guard let text = try? FileReading.text(of: "/proc/\(pid)/status", limit: 1 << 16) else {
            return nil
        }
        let line = text.split(separator: "\n").first { $0.hasPrefix("TracerPid:") }
        let number = line.flatMap { Int($0.dropFirst(10).filter { !$0.isWhitespace }) }
        return number == 0 ? nil : number
    }

    private func keep() {
        while true {
            let (pid, isStopping) = state.withLock { ($0.pid, $0.isStopping) }
            if isStopping { return }
            if pid <= 0 {
                replace()
                if state.withLock({ $0.pid <= 0 }), stops.wait(timeout: KeptProcess.pause) {
                    return
                }
            } else if hasEnded(pid) {
                // Its number stays taken until the state says that it is gone: `stop` may be about
                // to kill it.
                let lived = state.withLock { state -> Duration? in
                    // It was given up meanwhile, and another thread looks after the next one.
                    if state.isStopping || state.pid != pid { return nil }
                    OwnProgram.wait(for: pid)
                    state.pid = 0
                    return SystemClock.monotonic() - state.started
                }
                guard let lived else { return }
                // At once, but for those that end at once.
                if lived < KeptProcess.pause, stops.wait(timeout: KeptProcess.pause) { return }
                replace()
                report("process \(pid) has ended; another is started")
                alarm.raise("\(what): process \(pid) has ended")
            }
        }
    }

    private func replace() {
        state.withLock { state in
            guard !state.isStopping else { return }
            state.pid = start(pipe.reading) ?? 0
            state.started = SystemClock.monotonic()
            state.limits = state.pid > 0 ? ProcessLimits(of: state.pid) : nil
            state.stops = []
        }
    }

    /// Waits until something happens to it: it ended, and is a zombie still; or it was stopped, and
    /// goes on.
    private func hasEnded(_ pid: pid_t) -> Bool {
        var information = siginfo_t()
        let found = waitid(P_PID, id_t(pid), &information, WEXITED | WSTOPPED | WNOWAIT)
        guard found == 0 else { return errno != EINTR }
        guard information.si_code == CLD_STOPPED || information.si_code == CLD_TRAPPED else {
            return true
        }
        _ = waitid(P_PID, id_t(pid), &information, WSTOPPED | WNOHANG)
        let isTooOften = state.withLock { state in
            let now = SystemClock.monotonic()
            state.stops = state.stops.filter { now - $0 < .seconds(1) } + [now]
            return state.stops.count > KeptProcess.stopsTolerated
        }
        if KeptProcess.tracer(of: pid) != nil {
            // SIGCONT does nothing for it.
            let isMine = state.withLock { state in
                if state.isStopping || state.pid != pid { return false }
                state.abandon()
                return true
            }
            if isMine { alarm.raise("\(what): process \(pid) is traced") }
        } else {
            // A process that is stopped without end never gets to its work.
            kill(pid, isTooOften ? SIGKILL : SIGCONT)
        }
        return false
    }
}
