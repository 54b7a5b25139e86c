/// The clients of a control server, and which of them is dropped where room is short.
///
/// Belongs to the server's thread.
final class ControlClients {
    private var connections: [UInt64: ControlConnection] = [:]
    private var lastID: UInt64 = 0
    private let outbox: Outbox

    init(outbox: Outbox) { self.outbox = outbox }

    var ids: [UInt64] { Array(connections.keys) }

    subscript(id: UInt64) -> ControlConnection? { connections[id] }

    /// Whether the table has no place for another client. A helper of the daemon needs no place.
    var isFull: Bool { count { !$0.isOwn } >= ControlServer.maximumClients }

    /// Whether a message is in a buffer, where poll(2) does not see it.
    var haveUnseenInput: Bool {
        connections.values.contains { $0.hasUnseenInput && $0.mayReceive }
    }

    func count(where condition: (ControlConnection) -> Bool) -> Int {
        connections.values.count(where: condition)
    }

    /// Takes a client in. Returns its number.
    func add(_ connection: ControlConnection) -> UInt64 {
        lastID += 1
        outbox.open(lastID)
        connections[lastID] = connection
        return lastID
    }

    func drop(_ id: UInt64) {
        connections[id] = nil
        outbox.close(id)
    }

    /// Sends the answers that are ready and closes all connections.
    func end() {
        for (id, connection) in connections {
            connection.queue(outbox.take(id))
            _ = connection.send()
            outbox.close(id)
        }
        connections = [:]
    }

    /// The idle client to drop first: of the process with the most connections, the client with the
    /// oldest last call. An incomplete message does not count as activity.
    func leastDeserving() -> UInt64? {
        var connectionsOf: [Int32: Int] = [:]
        for connection in connections.values { connectionsOf[connection.peer.pid, default: 0] += 1 }
        return connections.filter { !$0.value.isBusy && !$0.value.isOwn }.min { first, second in
            let one = connectionsOf[first.value.peer.pid] ?? 0
            let other = connectionsOf[second.value.peer.pid] ?? 0
            return one != other
                ? one > other : first.value.lastActivity < second.value.lastActivity
        }?.key
    }

    /// Whether the input buffer may grow. Every client may have the initial size. Beyond that, the
    /// client with the largest buffer is dropped; false where that is this client.
    func hasRoomForInput(of connection: ControlConnection) -> Bool {
        while connection.input.isFull, let capacity = connection.input.nextCapacityBytes,
            capacity > ReceiveBuffer.initialBytes
        {
            let held = connections.values.reduce(0) { $0 + $1.input.grownBytes }
            if held - connection.input.grownBytes + capacity <= ControlServer.maximumBufferBytes {
                return true
            }
            let largest = connections.filter { !$0.value.isBusy && !$0.value.isOwn }.max {
                first, second in
                let (one, other) = (first.value.input.grownBytes, second.value.input.grownBytes)
                return one != other
                    ? one < other : first.value.lastActivity > second.value.lastActivity
            }
            guard let largest else { return false }
            drop(largest.key)
            if largest.value === connection { return false }
        }
        return true
    }
}
