import CWardLinux
import Glibc
import Synchronization
import WardSystem

/// Keeps a helper process as long as the mount lives. A program of the same user may stop, trace or
/// kill a helper, but must not prevent a lock that way. A stopped helper is continued. A helper
/// that was killed or traced, or had its limits lowered, is replaced, and an alarm is raised.
final class KeptProcess: Sendable {
    /// The pause before a new process, where the last one ended at once.
    private static let pause = Duration.seconds(1)
    /// More stops than this within a second count as an attack.
    private static let stopsTolerated = 3

    private struct State {
        var pid: pid_t
        var isStopping = false
        var thread: SystemThread?
        /// When the present process was started, monotonic.
        var started = SystemClock.monotonic()
        var limits: ProcessLimits?
        /// Monotonic times of stops within the last second.
        var stops: [Duration] = []
        /// Processes killed while traced: they can be waited for only after their tracer detached.
        var abandoned: [pid_t] = []

        /// Gives up the present process: only its tracer learns of its end.
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
    /// Stays open as long as this process lives, and carries no data. Its end tells the helper that
    /// the daemon died.
    private let pipe: (reading: Int32, writing: Int32)

    /// Starts the first helper on the calling thread, and later ones on a thread that lives as long
    /// as this object. Nil where the first can't be started.
    ///
    /// - `start` returns the number of a new process, or nil. It gets the descriptor to read from,
    ///   which ends with this process.
    /// - `report` gets the events of a process.
    /// - `what` is the helper's name in messages.
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
        // Without a thread the helper is not replaced, but it works.
        let thread = try? SystemThread(name, { [self] in keep() })
        state.withLock { $0.thread = thread }
    }

    /// Ends the helper, before another mount can get the number of its connection.
    func stop() {
        let (thread, pid) = state.withLock { state in
            state.isStopping = true
            if state.pid > 0 { kill(state.pid, SIGKILL) }
            return (state.thread.take(), state.pid)
        }
        stops.signal()
        // Only its tracer learns of a traced process's end.
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

    /// Kills the helper where it is traced or its limits were lowered; then it is replaced. For the
    /// guard's thread.
    func inspect() {
        let why = state.withLock { state -> String? in
            state.abandoned.removeAll { waitpid($0, nil, WNOHANG) != 0 }
            guard state.pid > 0, !state.isStopping else { return nil }
            let pid = state.pid
            if let tracer = KeptProcess.tracer(of: pid) {
                state.abandon()
                // The present thread waits for the end of the traced process.
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

    /// The process that traces another, `TracerPid` of proc_pid_status(5); nil where there is none,
    /// or the file can't be read.
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
                // The process stays a zombie, and keeps its number, until `state` has dropped it:
                // `stop` may be about to kill it.
                let lived = state.withLock { state -> Duration? in
                    // It was given up meanwhile, and another thread keeps the next one.
                    if state.isStopping || state.pid != pid { return nil }
                    OwnProgram.wait(for: pid)
                    state.pid = 0
                    return SystemClock.monotonic() - state.started
                }
                guard let lived else { return }
                // Replaced at once, except where it ended right after its start.
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

    /// Waits for a change of the helper. True where it ended (it is still a zombie); false where it
    /// was stopped, and was continued.
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
            // A traced process ignores SIGCONT.
            let isMine = state.withLock { state in
                if state.isStopping || state.pid != pid { return false }
                state.abandon()
                return true
            }
            if isMine { alarm.raise("\(what): process \(pid) is traced") }
        } else {
            // A process that is stopped all the time would never do its work.
            kill(pid, isTooOften ? SIGKILL : SIGCONT)
        }
        return false
    }
}
