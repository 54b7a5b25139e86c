import WardSystem

/// One call of a method of `org.ward.Volume`. Any thread may answer it, now or later.
public final class ControlCall: Sendable {
    /// An object; secrets in it are `JSONValue.secret`.
    public let parameters: JSONValue
    public let peer: PeerCredentials
    /// Whether the client takes several answers.
    public let wantsMore: Bool

    private let client: UInt64
    private let isOneway: Bool
    private let outbox: Outbox

    init(
        parameters: JSONValue, peer: PeerCredentials, wantsMore: Bool, isOneway: Bool,
        client: UInt64, outbox: Outbox
    ) {
        self.parameters = parameters
        self.peer = peer
        self.wantsMore = wantsMore
        self.isOneway = isOneway
        self.client = client
        self.outbox = outbox
    }

    /// The same call without its parameters, which may be secrets: for code that answers it many
    /// times.
    public var withoutParameters: ControlCall {
        ControlCall(
            parameters: .object([]), peer: peer, wantsMore: wantsMore, isOneway: isOneway,
            client: client, outbox: outbox)
    }

    /// Answers. `continues` says that more answers follow. Returns false where the client is gone.
    @discardableResult
    public func reply(_ parameters: JSONValue = .object([]), continues: Bool = false) -> Bool {
        let message = JSONValue.object(
            present: [
                ("parameters", parameters), ("continues", continues ? .bool(true) : nil),
            ])
        return finish(message, continues: continues)
    }

    /// Answers with an error of the interface.
    public func fail(_ error: VolumeError) {
        fail(VolumeInterface.qualified(error.name), error.parameters)
    }

    /// Answers `org.varlink.service.InvalidParameter`.
    public func failInvalidParameter(_ name: String) {
        fail(
            StandardInterface.qualified("InvalidParameter"), .object([("parameter", .string(name))])
        )
    }

    /// Bytes that the client has not read yet. Code that answers much waits until they become
    /// fewer: the server drops a client with too many.
    public var backlogBytes: Int { outbox.backlogBytes(client) }

    /// Whether the client is still there.
    public var isAlive: Bool { outbox.isLive(client) }

    /// Runs `body` once after the client is gone, on the server's thread, where it must not block.
    /// Runs it now where the client is gone already.
    public func whenGone(_ body: @escaping @Sendable () -> Void) { outbox.whenGone(client, body) }

    func fail(_ name: String, _ parameters: JSONValue = .object([])) {
        finish(.object([("error", .string(name)), ("parameters", parameters)]), continues: false)
    }

    @discardableResult
    private func finish(_ message: JSONValue, continues: Bool) -> Bool {
        outbox.add(isOneway ? [] : message.bytes + [0], for: client, isLast: !continues)
    }
}

/// Answers the calls of a control server.
public protocol ControlHandler: AnyObject, Sendable {
    /// Called on the server's only thread. Must not block: work that takes time goes to another
    /// thread. Must answer every call.
    func handle(_ method: ControlMethod, _ call: ControlCall)
    /// Called for a method of `HelperInterface`, by the daemon's own helper. The same rules hold.
    func handleHelper(_ call: ControlCall)
    /// Called when a client could not be accepted for lack of descriptors or memory: a client that
    /// wants to lock may not get through. Called on the server's thread, repeatedly while the
    /// shortage lasts.
    func cannotAccept(_ reason: Errno)
}

extension ControlHandler {
    public func handleHelper(_ call: ControlCall) { call.reply() }
    public func cannotAccept(_ reason: Errno) {}
}
