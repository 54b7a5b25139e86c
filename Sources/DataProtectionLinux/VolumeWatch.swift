import Dispatch
import Synchronization
internal import WardControl
internal import WardSystem

/// Follows one volume for all its subscribers in this process. One thread and one connection live
/// from the first subscription to the last.
final class VolumeWatch: Sendable {
    typealias Listener = @Sendable (ProtectedData.Event) -> Void

    /// The longest pause between two attempts to find the daemon.
    private static let maximumPauseMilliseconds = 1000
    private static let watches = Mutex<[String: VolumeWatch]>([:])

    private struct State {
        var listeners: [UInt64: Listener] = [:]
        var nextID: UInt64 = 0
        /// Whether `snapshot` was read at least once.
        var hasBegun = false
        var snapshot: ProtectedData.Snapshot?
        var interrupter: ControlInterrupter?
        var isEnded = false
    }

    private let path: String
    private let state = Mutex(State())
    /// Signalled at the end, which cuts the pause between two attempts short.
    private let ending = DispatchSemaphore(value: 0)

    private init(_ path: String) { self.path = path }

    /// A subscription. It ends with `cancel`, or else with the process.
    struct Subscription: Sendable {
        fileprivate let watch: VolumeWatch
        fileprivate let id: UInt64

        func cancel() { watch.unsubscribe(id) }
    }

    /// Calls `listener` with `began` as soon as the state is known, then with each event, one after
    /// the other.
    static func subscribe(_ path: String, _ listener: @escaping Listener) -> Subscription {
        watches.withLock { watches in
            let watch = watches[path] ?? VolumeWatch(path)
            let isNew = watches.updateValue(watch, forKey: path) == nil
            let id = watch.state.withLock { state in
                state.nextID += 1
                state.listeners[state.nextID] = listener
                // The mutex stays locked, so that no event comes before this one. A new listener
                // can't block.
                if state.hasBegun { listener(ProtectedData.Event(.began, state.snapshot)) }
                return state.nextID
            }
            if isNew { SystemThread.startDetached("ward-watch") { watch.run() } }
            return Subscription(watch: watch, id: id)
        }
    }

    private func unsubscribe(_ id: UInt64) {
        VolumeWatch.watches.withLock { watches in
            let isLast = state.withLock { state in
                state.listeners[id] = nil
                guard state.listeners.isEmpty, !state.isEnded else { return false }
                state.isEnded = true
                state.interrupter?.interrupt()
                return true
            }
            guard isLast else { return }
            watches[path] = nil
            ending.signal()
        }
    }

    // MARK: The thread

    private func run() {
        var pause = 10
        while true {
            if follow() { pause = 10 }
            if state.withLock({ $0.isEnded }) { return }
            // No daemon serves the volume, or the daemon has too many followers: look again and
            // again.
            look()
            if ending.wait(timeout: .now() + .milliseconds(pause)) == .success { return }
            pause = min(pause * 2, VolumeWatch.maximumPauseMilliseconds)
        }
    }

    /// Follows the events until the connection is lost. Returns false where there was none.
    private func follow() -> Bool {
        guard let client = try? ControlClient(volumeAt: path, timeout: .seconds(10)),
            let interrupter = try? client.interrupter()
        else { return false }
        let isEnded = state.withLock { state in
            state.interrupter = interrupter
            return state.isEnded
        }
        defer { state.withLock { $0.interrupter = nil } }
        if isEnded { return false }
        var hasFollowed = false
        try? client.monitor(signals: true, status: true) { notice in
            hasFollowed = true
            switch notice {
            case .status(let status): update(to: ProtectedData.Snapshot(status))
            case .event(let event): take(event)
            }
            return !state.withLock { $0.isEnded }
        }
        return hasFollowed
    }

    private func look() { update(to: ProtectedData.Snapshot(ofVolumeAt: path)) }

    /// Tells all listeners about a change. Only the watch's thread calls it, so all listeners get
    /// the events in order.
    ///
    /// Listeners are called without the mutex. A listener may wake a task and take the task's lock,
    /// and a task that is cancelled holds that lock while it unsubscribes.
    private func publish(_ change: @Sendable (inout State) -> ProtectedData.Event?) {
        let (event, listeners) = state.withLock { state in
            (change(&state), Array(state.listeners.values))
        }
        guard let event else { return }
        for listener in listeners { listener(event) }
    }

    /// Takes a new snapshot, without the events that led to it.
    private func update(to snapshot: ProtectedData.Snapshot?) {
        publish { state in
            let before = state.snapshot
            let hadBegun = state.hasBegun
            state.snapshot = snapshot
            state.hasBegun = true
            guard !hadBegun || before != snapshot else { return nil }
            let kind: ProtectedData.Event.Kind =
                hadBegun && snapshot == nil
                ? .ended : hadBegun && before != nil ? .stateChanged : .began
            return ProtectedData.Event(kind, snapshot)
        }
    }

    private func take(_ event: ControlEvent) {
        if event.kind == ControlEvent.Kind.passcodeChanged.rawValue {
            guard let now = ProtectedData.Snapshot(ofVolumeAt: path) else { return }
            return publish { state in
                state.snapshot = now
                return ProtectedData.Event(.passcodeChanged, now)
            }
        }
        publish { state in
            guard var snapshot = state.snapshot else { return nil }
            let before = snapshot.state
            if let text = event.state, let new = ProtectedData.State(rawValue: text) {
                snapshot.enter(new)
            }
            defer { state.snapshot = snapshot }
            guard let protection = event.protectionClass.flatMap(FileProtectionType.init(letter:)),
                let kind = VolumeWatch.kind(event.kind)
            else {
                return before == snapshot.state
                    ? nil : ProtectedData.Event(.stateChanged, snapshot)
            }
            if kind == .didBecomeUnavailable {
                snapshot.availableClasses.remove(protection)
            } else {
                snapshot.availableClasses.insert(protection)
            }
            return ProtectedData.Event(
                kind, snapshot, protection: protection,
                remaining: event.secondsLeft.map { .seconds($0) })
        }
    }

    /// The kind of a signal about one class; nil for other events.
    private static func kind(_ name: String) -> ProtectedData.Event.Kind? {
        switch ControlEvent.Kind(rawValue: name) {
        case .willBecomeUnavailable: .willBecomeUnavailable
        case .didBecomeUnavailable: .didBecomeUnavailable
        case .didBecomeAvailable: .didBecomeAvailable
        default: nil
        }
    }
}
