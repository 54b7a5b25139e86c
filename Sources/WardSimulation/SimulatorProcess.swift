import CWardLinux
import Dispatch
import Glibc
import Synchronization
import WardControl
import WardSystem

/// The process of a simulated device, `ward simulate`. It makes a volume, starts its daemon, and
/// removes both on request. It also does so when the process that started it ends, for any reason.
///
/// Concurrency: any thread; one request at a time, guarded by `state`.
public final class SimulatorProcess: Sendable {
    /// Longer than any request takes unless the process hangs.
    private static let answerTimeoutSeconds = 60

    private struct State: ~Copyable {
        /// Nil after the end.
        var socket: LineSocket?
    }

    public let pid: pid_t
    private let state: Mutex<State>

    /// Starts the program `ward`. Throws where no socket or process can be made.
    public init(program: String) throws(SimulatorError) {
        let ends: (ours: Int32, theirs: Int32)
        do throws(Errno) {
            ends = try Syscall.socketPair()
        } catch {
            throw SimulatorError("cannot start a simulated device", why: "\(error)", exitCode: 71)
        }
        let socket = LineSocket(adopting: ends.ours)
        defer { Syscall.close(ends.theirs) }
        socket.setTimeout(seconds: SimulatorProcess.answerTimeoutSeconds)
        pid = try SimulatorProcess.spawn(program, input: ends.theirs)
        state = Mutex(State(socket: socket))
    }

    deinit {
        // Closing the socket ends the process. Nothing waits for that end, but the zombie must be
        // reaped.
        let pid = pid
        let isRunning = state.withLock { state in
            defer { state.socket = nil }
            return state.socket != nil
        }
        if isRunning { DispatchQueue.global().async { SimulatorProcess.reap(pid) } }
    }

    /// Makes and mounts the volume.
    public func start(_ settings: SimulatorSettings) throws(SimulatorError) -> SimulatedMount {
        try mount(ask(.start(settings)))
    }

    /// Kills the daemon as a crash would; the simulator goes on.
    public func kill() throws(SimulatorError) { _ = try ask(.kill) }

    /// Ends the daemon where it runs and starts it again, before first unlock.
    public func restart() throws(SimulatorError) -> SimulatedMount { try mount(ask(.restart)) }

    /// All events that the daemons still remember, the oldest first.
    public func events() throws(SimulatorError) -> [ControlEvent] {
        guard let events = try ask(.events)["events"]?.arrayValue else { throw notAnAnswer() }
        return events.compactMap(ControlEvent.init(json:))
    }

    /// Audits the volume in its present lock state.
    public func audit() throws(SimulatorError) -> Audit {
        guard let audit = Audit(json: try ask(.audit)) else { throw notAnAnswer() }
        return audit
    }

    /// Removes the device; returns when it is gone. A second call does nothing.
    public func end() throws(SimulatorError) {
        guard state.withLock({ $0.socket != nil }) else { return }
        let pid = pid
        do throws(SimulatorError) {
            _ = try ask(.end)
        } catch {
            state.withLock { $0.socket = nil }
            // A process that did not answer in time may take long to end. The test has waited long
            // enough.
            DispatchQueue.global().async { SimulatorProcess.reap(pid) }
            throw error
        }
        state.withLock { $0.socket = nil }
        SimulatorProcess.reap(pid)
    }

    private func mount(_ answer: JSONValue) throws(SimulatorError) -> SimulatedMount {
        guard let mount = SimulatedMount(json: answer) else { throw notAnAnswer() }
        return mount
    }

    private func ask(_ request: SimulatorRequest) throws(SimulatorError) -> JSONValue {
        let answer = state.withLock { state -> Result<JSONValue, SimulatorError> in
            guard let socket = state.socket else {
                return .failure(
                    SimulatorError("cannot use the simulated device", why: "it was removed"))
            }
            do throws(Errno) {
                try socket.send(request.json)
                if let answer = try socket.receive() { return .success(answer) }
                return .failure(gone("it ended without a word"))
            } catch {
                switch error {
                case .wouldBlock: return .failure(gone("it does not answer"))
                case .brokenPipe: return .failure(gone("it ended without a word"))
                default: return .failure(gone("\(error)"))
                }
            }
        }
        let message = try answer.get()
        if let error = SimulatorError(json: message) { throw error }
        return message
    }

    private func gone(_ why: String) -> SimulatorError {
        SimulatorError("cannot talk to the simulated device's process \(pid)", why: why)
    }

    private func notAnAnswer() -> SimulatorError {
        SimulatorError(
            "cannot talk to the simulated device's process \(pid)",
            why: "its answer is of another version of ward",
            hint: "WARD_BINARY names the program to use")
    }

    private static func reap(_ pid: pid_t) {
        var status: Int32 = 0
        while waitpid(pid, &status, 0) < 0, errno == EINTR {}
    }

    /// Starts the process in a session of its own: a signal to the test's terminal or process group
    /// must leave it alive to clean up. It closes inherited descriptors itself: other threads of
    /// this process may be opening some now.
    private static func spawn(_ program: String, input: Int32) throws(SimulatorError) -> pid_t {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_adddup2(&actions, input, 0)
        for descriptor in 1...2 {
            posix_spawn_file_actions_addopen(&actions, Int32(descriptor), "/dev/null", O_WRONLY, 0)
        }
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var signals = sigset_t()
        sigemptyset(&signals)
        posix_spawnattr_setsigmask(&attributes, &signals)
        sigfillset(&signals)
        posix_spawnattr_setsigdefault(&attributes, &signals)
        posix_spawnattr_setflags(
            &attributes,
            Int16(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | 0x80 /* POSIX_SPAWN_SETSID */))
        var arguments: [UnsafeMutablePointer<CChar>?] = [strdup("ward"), strdup("simulate"), nil]
        defer { for argument in arguments { free(argument) } }
        var child = pid_t()
        let reason = posix_spawn(&child, program, &actions, &attributes, &arguments, environ)
        guard reason == 0 else {
            throw SimulatorError(
                "cannot start \(program)", why: "\(Errno(rawValue: reason))",
                hint: "WARD_BINARY names the program to use", exitCode: 69)
        }
        return child
    }
}
