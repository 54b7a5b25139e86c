import WardSystem

/// One call of a method of `org.ward.Volume`, to be answered now or later, from any thread.
public final class ControlCall: Sendable {
    /// Without the interface's name: `Lock`.
    public let method: String
    /// An object; secrets in it are `JSONValue.secret`.
    public let parameters: JSONValue
    public let peer: PeerCredentials
    /// Whether the client takes more than one answer.
    public let wantsMore: Bool

    private let client: UInt64
    private let isOneway: Bool
    private let outbox: Outbox

    init(
        method: String, parameters: JSONValue, peer: PeerCredentials, wantsMore: Bool,
        isOneway: Bool, client: UInt64, outbox: Outbox
    ) {
        self.method = method
        self.parameters = parameters
        self.peer = peer
        self.wantsMore = wantsMore
        self.isOneway = isOneway
        self.client = client
        self.outbox = outbox
    }

    /// The same call for who answers it again and again: without its parameters, which may be
    /// secrets.
    public var withoutParameters: ControlCall {
        ControlCall(
            method: method, parameters: .object([]), peer: peer, wantsMore: wantsMore,
            isOneway: isOneway, client: client, outbox: outbox)
    }

    /// Answers. `continues` says that more answers follow. False where the client is gone.
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

    /// What the client has left unread: whoever answers much waits for it to become less, or the
    /// client is dropped.
    public var backlogBytes: Int { outbox.backlogBytes(client) }

    /// Whether the client is still there.
    public var isAlive: Bool { outbox.isLive(client) }

    /// Runs `body` once, when the client is gone, on the server's thread, where it must not block;
    /// now, where it is gone.
    public func whenGone(_ body: @escaping @Sendable () -> Void) { outbox.whenGone(client, body) }

    func fail(_ name: String, _ parameters: JSONValue = .object([])) {
        finish(.object([("error", .string(name)), ("parameters", parameters)]), continues: false)
    }

    @discardableResult
    private func finish(_ message: JSONValue, continues: Bool) -> Bool {
        outbox.add(isOneway ? [] : message.bytes + [0], for: client, isLast: !continues)
    }
}

/// What answers calls.
public protocol ControlHandler: AnyObject, Sendable {
    /// Called on the server's only thread: must not block, but hand over what takes time. Every
    /// call is to be answered.
    func handle(_ call: ControlCall)
    /// A method of `HelperInterface`, called by the daemon's own helper. The same holds.
    func handleHelper(_ call: ControlCall)
    /// A client could not be taken in for want of descriptors or memory: whoever wants to lock may
    /// not get through. Called on the server's thread, again and again while it goes on.
    func cannotAccept(_ reason: Errno)
}

extension ControlHandler {
    public func handleHelper(_ call: ControlCall) { call.reply() }
    public func cannotAccept(_ reason: Errno) {}
}
