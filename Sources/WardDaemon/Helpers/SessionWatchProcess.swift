import CWardLinux
import Glibc
import Synchronization
import WardControl
import WardSystem

/// The child that locks the volume before sleep and shutdown, with the screen where wanted, and
/// after its user's last logout.
///
/// It is a process of its own because it loads the system's D-Bus library, which must not be in the
/// process with keys. It calls the daemon over an inherited socketpair(2), never by a socket's
/// name. So a program that replaces the control socket does not affect these locks.
final class SessionWatchProcess: Sendable {
    /// The variable with the system bus's address, as sd_bus_open_system(3) reads it.
    private static let busVariable = "DBUS_SYSTEM_BUS_ADDRESS"
    private static let busPaths = [
        "/run/dbus/system_bus_socket", "/var/run/dbus/system_bus_socket",
    ]

    /// The triggers that the child is to watch.
    struct Wishes: Sendable {
        var screen: Bool
        var logout: Bool

        var kinds: [LockTrigger.Kind] {
            [.sleep, .shutdown] + (screen ? [.screen] : []) + (logout ? [.logout] : [])
        }

        func unarmed(_ why: String) -> [LockTrigger] {
            kinds.map { LockTrigger(kind: $0, armed: false, why: why) }
        }
    }

    /// The child's last report.
    private struct State {
        var triggers: [LockTrigger]
        var hasReported = false
        /// Whether its user was logged in at the mount or later. A replacement of the child
        /// continues from there.
        var watchesLogout = false
    }

    private let wishes: Wishes
    private let state: Mutex<State>
    private let reported = WakeWord()
    private let hub: EventHub
    /// Written once, before other threads have this object.
    private let process = Mutex<KeptProcess?>(nil)

    /// Whether there is a system bus.
    static var isUseful: Bool {
        getenv(busVariable) != nil || busPaths.contains { access($0, W_OK) == 0 }
    }

    /// Starts the child. Without a system bus it starts none, and `triggers` says so.
    init(
        server: ControlServer, mountPoint: String, wishes: Wishes, hub: EventHub, alarm: Alarm,
        report: @escaping @Sendable (String) -> Void
    ) {
        self.wishes = wishes
        self.hub = hub
        guard SessionWatchProcess.isUseful else {
            state = Mutex(State(triggers: wishes.unarmed("no system bus"), hasReported: true))
            return
        }
        state = Mutex(State(triggers: wishes.unarmed("the watch is being started")))
        let words = ["session-watch", "--mount-point", mountPoint, "--fd", "3", "--socket-fd", "4"]
        // In a session of its own: signals to the daemon's terminal or process group must not end
        // it before its last lock.
        let process = KeptProcess("ward-session", "session watch", alarm: alarm) {
            [server, unowned self] lifeline in
            start(words, lifeline, server)
        } report: { [unowned self] text in
            take(wishes.unarmed("the watch has ended, and is started again"), isReport: false)
            report("session watch: \(text)")
        }
        self.process.withLock { $0 = process }
        if process == nil {
            take(wishes.unarmed("the watch can't be started"), isReport: true)
        }
    }

    private func start(_ words: [String], _ lifeline: Int32, _ server: ControlServer) -> pid_t? {
        var words = words
        if wishes.screen { words.append("--screen") }
        if wishes.logout {
            let isKnown = state.withLock { $0.watchesLogout }
            words += ["--logout", isKnown ? "known" : "new"]
        }
        guard let pair = try? Syscall.socketPair() else { return nil }
        let ours = OwnedDescriptor(adopting: pair.ours)
        let theirs = OwnedDescriptor(adopting: pair.theirs)
        let pid = OwnProgram.start(
            words, descriptors: [lifeline, theirs.rawValue], ownSession: true,
            variables: [SessionWatchProcess.busVariable])
        if pid != nil { server.adopt(ours) }
        return pid
    }

    func stop() { process.withLock { $0 }?.stop() }

    /// The child for the guard; nil where there is none.
    var keptProcess: KeptProcess? { process.withLock { $0 } }

    /// The triggers that were wanted, and whether they lock the volume.
    var triggers: [LockTrigger] { state.withLock { $0.triggers } }

    /// Takes the child's report on its triggers. A trigger that can't be had, or is lost, is an
    /// event.
    func take(_ triggers: [LockTrigger], isReport: Bool = true) {
        let changed = state.withLock { state -> [LockTrigger] in
            let before = state.triggers
            state.triggers = triggers
            if isReport { state.hasReported = true }
            if triggers.contains(where: { $0.armed && $0.kind == LockTrigger.Kind.logout.rawValue })
            {
                state.watchesLogout = true
            }
            return triggers.filter { !before.contains($0) }
        }
        if isReport { reported.signal() }
        for trigger in changed {
            guard let detail = SessionWatchProcess.text(of: trigger) else { continue }
            hub.emit(ControlEvent(kind: .note, detail: detail))
        }
    }

    /// The event's text for a trigger with a fault; nil where it has none.
    private static func text(of trigger: LockTrigger) -> String? {
        guard let why = trigger.why else { return nil }
        return trigger.armed
            ? "at \(trigger.kind) the volume is locked, and nothing waits for that: \(why)"
            : "nothing locks at \(trigger.kind): \(why)"
    }

    /// Waits for the first report; false where none came in time.
    func awaitReport(_ patience: Duration) -> Bool {
        let end = SystemClock.monotonic() + patience
        while !state.withLock({ $0.hasReported }) {
            let left = end - SystemClock.monotonic()
            if left <= .zero { return false }
            reported.wait(timeout: left)
        }
        return true
    }

    /// The reason why a locked screen does not lock the volume; nil where it does, or was not
    /// wanted.
    var screenFailure: String? {
        guard wishes.screen else { return nil }
        let screen = triggers.first { $0.kind == LockTrigger.Kind.screen.rawValue }
        guard screen?.armed != true else { return nil }
        return screen?.why ?? "it is not watched"
    }
}
