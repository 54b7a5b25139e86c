import Synchronization
import WardControl
import WardFormat

/// The trusted hosts that are connected now.
///
/// Concurrency: any thread; a mutex guards `state`. Only the lock thread decides when a connection
/// begins and ceases to count for the lock state.
final class HostConnections: Sendable {
    /// One connection of a host's program to the control socket.
    final class Connection: Sendable {
        let hostID: [UInt8]
        let name: String
        let call: ControlCall
        /// Whether the lock state machine counts it.
        let counts = Atomic(false)

        init(hostID: [UInt8], name: String, call: ControlCall) {
            self.hostID = hostID
            self.name = name
            self.call = call
        }

        /// Sends the last message to the host's program.
        func end(_ reason: String) { call.reply(.object([("ended", .string(reason))])) }
    }

    private let state = Mutex<[Connection]>([])

    func add(_ connection: Connection) { state.withLock { $0.append(connection) } }

    func remove(_ connection: Connection) {
        state.withLock { state in state.removeAll { $0 === connection } }
    }

    /// The connections that count.
    var all: [Connection] {
        state.withLock { state in state.filter { $0.counts.load(ordering: .acquiring) } }
    }

    func all(of hostID: [UInt8]) -> [Connection] { all.filter { $0.hostID == hostID } }

    /// Ends all connections, so that none counts any more. Returns those that counted. On the lock
    /// thread.
    func endAll(_ reason: String) -> [Connection] {
        let ended = state.withLock { state in
            defer { state = [] }
            return state.filter { $0.counts.exchange(false, ordering: .acquiringAndReleasing) }
        }
        for connection in ended { connection.end(reason) }
        return ended
    }
}
