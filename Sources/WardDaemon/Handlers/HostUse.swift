import Synchronization
import WardKeys
import WardSystem

/// Writes down when trusted hosts were used last, and the time by which they expire.
///
/// Concurrency: any thread; a mutex for each of the two times. `note` waits for the state
/// directory, so it is called in the queue `ward-trust`, or by callers that may wait.
final class HostUse: Sendable {
    /// How often the time and the connected hosts are written down, seconds.
    private static let interval: UInt64 = 3600

    private let store: KeybagStore
    private let keyring: ClassKeyring
    private let connections: HostConnections
    private let time: any TimeSource
    private let queue: SerialQueue
    private let steadyTime: Mutex<SteadyTime>
    /// When the store was last told the time, seconds since 1970.
    private let lastNote = Mutex(UInt64(0))

    init(_ mount: MountParts, queue: SerialQueue) {
        store = mount.store
        keyring = mount.volume.keyring
        connections = mount.connections
        time = mount.time
        self.queue = queue
        steadyTime = Mutex(
            SteadyTime(
                wall: SteadyTime.wallClock(), latest: mount.store.latestTime,
                sinceBoot: mount.time.now))
    }

    /// Seconds since 1970 that never run backwards. With a manual clock, days pass by that clock
    /// alone.
    func now() -> UInt64 {
        let sinceBoot = time.now
        let wall = time is ManualTime ? nil : SteadyTime.wallClock()
        return steadyTime.withLock { $0.now(wall: wall, sinceBoot: sinceBoot) }
    }

    /// Writes down the time and the connected hosts: with `always` now, else after
    /// `interval`. A failure makes a host expire sooner, never later.
    func note(always: Bool) {
        let now = now()
        let isDue = lastNote.withLock { last in
            guard always || now >= last &+ HostUse.interval else { return false }
            last = now
            return true
        }
        if isDue {
            try? store.noteHostUse(connections.all.map(\.hostID), keyring: keyring, at: now)
        }
    }

    /// Writes them down in the queue, for callers that must not wait for the state directory.
    func noteLater() { queue.add { [self] in note(always: false) } }

    /// Writes down, in the queue, the use of hosts whose connection began or ended just now.
    func note(_ hostIDs: [[UInt8]]) {
        queue.add { [self] in
            try? store.noteHostUse(hostIDs, keyring: keyring, at: now())
        }
    }
}
