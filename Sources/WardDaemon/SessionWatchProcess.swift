import CWardLinux
import Glibc
import Synchronization
import WardControl
import WardSystem

/// The child that locks the volume before the machine sleeps or shuts down, with the screen where
/// that is wanted, and when its user has logged out.
///
/// A process of its own because it loads the system's D-Bus library, which has no business beside
/// keys. It calls this process over one end of a socketpair(2) that it inherits, never by a
/// socket's name: whoever puts another socket in the place of the volume's changes nothing about
/// these locks.
final class SessionWatchProcess: Sendable {
    /// Where the system bus listens, as sd_bus_open_system(3) looks for it.
    private static let busVariable = "DBUS_SYSTEM_BUS_ADDRESS"
    private static let busPaths = [
        "/run/dbus/system_bus_socket", "/var/run/dbus/system_bus_socket",
    ]

    /// The triggers that it was told to watch.
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

    /// The state that it has told of itself.
    private struct State {
        var triggers: [LockTrigger]
        var hasReported = false
        /// Its user was logged in at the start of the mount, or later: what replaces it goes on
        /// from there.
        var watchesLogout = false
    }

    private let wishes: Wishes
    private let state: Mutex<State>
    private let reported = WakeWord()
    private let hub: EventHub
    /// Written once, before anybody else has this object.
    private let process = Mutex<KeptProcess?>(nil)

    /// Whether there is a system bus to watch.
    static var isUseful: Bool {
        getenv(busVariable) != nil || busPaths.contains { access($0, W_OK) == 0 }
    }

    /// Without a system bus nothing is started, and `triggers` says so.
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
        // A session of its own: what ends the daemon by its terminal or group must not end this
        // before its last lock.
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
        var pair: [Int32] = [-1, -1]
        guard
            socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0, &pair) == 0
        else { return nil }
        let ours = OwnedDescriptor(adopting: pair[0])
        let theirs = OwnedDescriptor(adopting: pair[1])
        let pid = OwnProgram.start(
            words, descriptors: [lifeline, theirs.rawValue], ownSession: true,
            variables: [SessionWatchProcess.busVariable])
        if pid != nil { server.adopt(ours) }
        return pid
    }

    func stop() { process.withLock { $0 }?.stop() }

    /// For the guard; nil where there is no such process.
    var keptProcess: KeptProcess? { process.withLock { $0 } }

    /// The triggers that lock the volume, as far as they were wanted.
    var triggers: [LockTrigger] { state.withLock { $0.triggers } }

    /// The child has said what it watches. A trigger that can't be had, or is lost, is an event.
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

    /// The text of an event about a trigger that does not do all it should; nil where it does.
    private static func text(of trigger: LockTrigger) -> String? {
        guard let why = trigger.why else { return nil }
        return trigger.armed
            ? "at \(trigger.kind) the volume is locked, and nothing waits for that: \(why)"
            : "nothing locks at \(trigger.kind): \(why)"
    }

    /// Waits for the first report; false where none has come in time.
    func awaitReport(_ patience: Duration) -> Bool {
        let end = SystemClock.monotonic() + patience
        while !state.withLock({ $0.hasReported }) {
            let left = end - SystemClock.monotonic()
            if left <= .zero { return false }
            reported.wait(timeout: left)
        }
        return true
    }

    /// Why a locked screen does not lock the volume; nil where it does, or was not to.
    var screenFailure: String? {
        guard wishes.screen else { return nil }
        let screen = triggers.first { $0.kind == LockTrigger.Kind.screen.rawValue }
        guard screen?.armed != true else { return nil }
        return screen?.why ?? "it is not watched"
    }
}
