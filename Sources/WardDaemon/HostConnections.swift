import Synchronization
import WardControl
import WardFormat

/// The trusted hosts that are connected now.
///
/// Concurrency: any thread; `state` is guarded by its mutex. Whether a connection counts towards
/// the lock state is decided on the lock thread alone, where it begins to and where it ceases to.
final class HostConnections: Sendable {
    /// One connection: of the socket's client, which is the host's program.
    final class Connection: Sendable {
        let hostID: [UInt8]
        let name: String
        let call: ControlCall
        /// The lock state machine has it in its count.
        let counts = Atomic(false)

        init(hostID: [UInt8], name: String, call: ControlCall) {
            self.hostID = hostID
            self.name = name
            self.call = call
        }

        /// The last word to the host's program.
        func end(_ reason: String) { call.reply(.object([("ended", .string(reason))])) }
    }

    private let state = Mutex<[Connection]>([])

    func add(_ connection: Connection) { state.withLock { $0.append(connection) } }

    func remove(_ connection: Connection) {
        state.withLock { state in state.removeAll { $0 === connection } }
    }

    /// Those that count.
    var all: [Connection] {
        state.withLock { state in state.filter { $0.counts.load(ordering: .acquiring) } }
    }

    func all(of hostID: [UInt8]) -> [Connection] { all.filter { $0.hostID == hostID } }

    /// Ends all of them; none counts any more. Returns those that did. On the lock thread.
    func endAll(_ reason: String) -> [Connection] {
        let ended = state.withLock { state in
            defer { state = [] }
            return state.filter { $0.counts.exchange(false, ordering: .acquiringAndReleasing) }
        }
        for connection in ended { connection.end(reason) }
        return ended
    }
}
