import WardVolume

/// The source of requests. Each worker thread has one, and is the only one to use it.
///
/// There are two, `DeviceTransport` and `RingTransport`. Workers are generic over them, so the
/// choice costs nothing for each request.
protocol RequestTransport {
    associatedtype Channel: ReplyChannel
    /// Waits for the next request; nil when the kernel has ended the connection. The request lies
    /// in this transport's buffer until the next call.
    mutating func nextRequest() -> (request: Request, channel: Channel)?
}

/// The way of one reply to the kernel. Another thread may use it, once for each request.
///
/// False from `send`: the kernel no longer wants the reply, and has not taken over what it names.
protocol ReplyChannel: Sendable {
    /// `message` begins with its `fuse_out_header`.
    func send(_ message: UnsafeRawBufferPointer) -> Bool
    /// `head` begins with its `fuse_out_header`; `payload` follows it.
    func send(_ head: UnsafeRawBufferPointer, _ payload: UnsafeRawBufferPointer) -> Bool
    /// The place to put a READ's content, so that `send` need not copy it: a transfer's bytes, with
    /// room for a page before and behind. Nil: anywhere.
    var contentTarget: UnsafeMutableRawPointer? { get }
    /// The channel for use on another thread.
    var elsewhere: Self { get }
    /// Whether another thread than the one that took the request may reply.
    static var isForAnyThread: Bool { get }
    /// If only that thread may reply: whether no other request needs it now.
    var hasCompany: Bool { get }
    /// Whether programs would wait while the thread that took the request syncs.
    var holdsUpOthers: Bool { get }
}

extension ReplyChannel {
    var contentTarget: UnsafeMutableRawPointer? { nil }
    var elsewhere: Self { self }
    static var isForAnyThread: Bool { true }
    var hasCompany: Bool { true }
    var holdsUpOthers: Bool { false }
}

/// The way of requests between the kernel and the daemon.
public enum FUSETransport: String, Sendable, CaseIterable {
    /// read(2) and write(2) on `/dev/fuse`, fuse(4).
    case device
    /// FUSE over io_uring: Linux 6.14 with the module parameter `enable_uring`.
    case ioUring = "io-uring"
}
