import CWardLinux
import Glibc
import Synchronization
import WardConsole
import WardControl
import WardSystem

/// Keeps the data of `ward watch` up to date on separate threads, so that a daemon that hangs does
/// not block the keys.
///
/// Concurrency: any thread; `scene` is guarded by its mutex. The threads run until the process
/// ends.
final class WatchFeed: Sendable {
    /// The number of events kept; more than any screen has lines.
    private static let maximumEvents = 200
    private static let statusMilliseconds: Int32 = 1000
    /// A search of all processes is expensive: it takes at most a tenth of the time.
    private static let holderInterval = Duration.seconds(3)
    /// The longest wait for an answer.
    private static let patience = Duration.seconds(10)

    private struct State {
        var scene: WatchScene
        /// Monotonic time.
        var statusAt = Duration.zero
        var messageUntil = Duration.zero
    }

    /// Used to find the daemon again: after a new mount another daemon serves the volume, on
    /// another socket.
    private let volume: FoundVolume
    private let state: Mutex<State>
    /// An eventfd(2), readable when something changed.
    let changed: Int32
    /// An eventfd(2), readable when the status should be asked for at once.
    private let outdated: Int32

    init(_ volume: FoundVolume, place: String) throws(Errno) {
        self.volume = volume
        state = Mutex(State(scene: WatchScene(place: place)))
        changed = try Syscall.check { eventfd(0, Int32(EFD_CLOEXEC | EFD_NONBLOCK)) }
        outdated = try Syscall.check { eventfd(0, Int32(EFD_CLOEXEC | EFD_NONBLOCK)) }
    }

    deinit {
        Syscall.close(changed)
        Syscall.close(outdated)
    }

    /// Starts the threads.
    func start() {
        SystemThread.startDetached("ward-events") { [self] in
            while true { followEvents() }
        }
        SystemThread.startDetached("ward-status") { [self] in
            while true { followStatus() }
        }
    }

    /// The current data.
    var scene: WatchScene {
        let now = SystemClock.monotonic()
        return state.withLock { state in
            var scene = state.scene
            let age = (now - state.statusAt).components
            scene.statusAge = Double(age.seconds) + Double(age.attoseconds) / 1e18
            if now >= state.messageUntil { scene.message = nil }
            return scene
        }
    }

    /// Shows a message in place of the keys for a while.
    func say(_ message: String) {
        update {
            $0.scene.message = message
            $0.messageUntil = SystemClock.monotonic() + .seconds(4)
        }
    }

    /// Locks as `ward lock` does, and shows the result.
    func lock(now: Bool) {
        SystemThread.startDetached("ward-lock") { [self] in
            do throws(ControlError) {
                let client = try connect(timeout: WatchFeed.patience)
                switch try client.lock(now: now) {
                case "noPasscode": say("no passcode is set: a lock changes nothing")
                case "beforeFirstUnlock", "locked": say("locked")
                case "lockedWithHost": say("locked, and open for a trusted host")
                default: break
                }
                refresh(try client.status())
            } catch {
                say("can't lock: \(error.reason)")
            }
        }
    }

    /// Connects to the present daemon of the same mount point.
    private func connect(timeout: Duration?) throws(ControlError) -> ControlClient {
        if volume.mount == nil { return try volume.connect(timeout: timeout) }
        return try ControlClient(volumeAt: volume.mountPoint, timeout: timeout)
    }

    private func update(_ body: (inout State) -> Void) {
        state.withLock { body(&$0) }
        WatchFeed.signal(changed)
    }

    private static func signal(_ event: Int32) {
        var one: UInt64 = 1
        _ = write(event, &one, 8)
    }

    /// Waits until the status is due again or the mount had an event.
    private func waitForStatus() {
        var waits = [pollfd(fd: outdated, events: Int16(POLLIN), revents: 0)]
        _ = waits.withUnsafeMutableBufferPointer {
            try? Syscall.poll($0, timeoutMilliseconds: WatchFeed.statusMilliseconds)
        }
        // Several events at once cause one request for the status.
        usleep(50_000)
        var count: UInt64 = 0
        _ = read(outdated, &count, 8)
    }

    private func refresh(_ status: VolumeStatus) {
        update {
            $0.scene.status = status
            $0.scene.problem = nil
            $0.statusAt = SystemClock.monotonic()
        }
    }

    /// Follows the daemon until it is gone, then waits a second. Inlining is off: with the
    /// two loops nested, the optimizer of Swift 6.3 does not terminate.
    @inline(never)
    private func followEvents() {
        defer { sleep(1) }
        do throws(ControlError) {
            let client = try connect(timeout: nil)
            update { $0.scene.events = [] }
            try client.monitor(last: WatchFeed.maximumEvents, status: true) { notice in
                switch notice {
                case .status(let status): refresh(status)
                case .event(let event):
                    update { WatchFeed.add(event, to: &$0.scene.events) }
                    WatchFeed.signal(outdated)
                }
                return true
            }
        } catch {
            // The other thread reports the error.
        }
    }

    /// Adds an event. A repeated event moves to the end.
    static func add(_ event: ControlEvent, to events: inout [ControlEvent]) {
        if event.count != nil { events.removeAll { $0.sequence == event.sequence } }
        events.append(event)
        if events.count > maximumEvents { events.removeFirst() }
    }

    /// See `followEvents` about inlining.
    @inline(never)
    private func followStatus() {
        defer { sleep(1) }
        do throws(ControlError) {
            let client = try connect(timeout: WatchFeed.patience)
            var holdersAt = Duration.zero
            while true {
                refresh(try client.status())
                if SystemClock.monotonic() >= holdersAt {
                    let began = SystemClock.monotonic()
                    let report = try client.holders(protectionClass: "A")
                    update { $0.scene.holders = report }
                    let now = SystemClock.monotonic()
                    holdersAt = now + max(WatchFeed.holderInterval, (now - began) * 10)
                }
                waitForStatus()
            }
        } catch {
            update {
                $0.scene.problem = WatchFeed.problem(error, $0.scene.status)
                $0.scene.holders = nil
            }
        }
    }

    private static func problem(_ error: ControlError, _ status: VolumeStatus?) -> String {
        switch error.code {
        case .noSocket, .refused, .connectionLost, .notInMount:
            let volume = status.map { Text.shellQuoted($0.volume) } ?? "VOLUME"
            let mountPoint = status.map { Text.shellQuoted($0.mountpoint) } ?? "MOUNTPOINT"
            return "not mounted: ward mount \(volume) \(mountPoint)"
        case .timedOut: return "the daemon does not answer"
        default: return error.reason
        }
    }
}
