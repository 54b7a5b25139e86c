import WardVolume

/// Where requests come from. One value for each worker thread; used by that thread alone.
///
/// There are two, `DeviceTransport` and `RingTransport`. Workers are generic over it, so the choice
/// costs nothing for each request.
protocol RequestTransport {
    associatedtype Channel: ReplyChannel
    /// Waits for the next request; nil when the kernel has ended the connection. The request lies
    /// in this transport's buffer until the next call.
    mutating func nextRequest() -> (request: Request, channel: Channel)?
}

/// Where the reply to a request goes; may be used from another thread, once for each request.
///
/// False: the kernel no longer wants the reply, and has not taken over what it names.
protocol ReplyChannel: Sendable {
    /// `message` begins with its `fuse_out_header`.
    func send(_ message: UnsafeRawBufferPointer) -> Bool
    /// `head` begins with its `fuse_out_header`; `payload` follows it.
    func send(_ head: UnsafeRawBufferPointer, _ payload: UnsafeRawBufferPointer) -> Bool
    /// Where the content that a READ asks for is to be put together, so that `send` need not copy
    /// it: a transfer's bytes, and room for a page before and behind. Nil: anywhere.
    var contentTarget: UnsafeMutableRawPointer? { get }
    /// The same for another thread than the one that took the request.
    var elsewhere: Self { get }
    /// Whether another thread than the one that took the request may reply.
    static var isForAnyThread: Bool { get }
    /// Where only that one may: whether it is not needed for other requests now.
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

/// What the kernel and the daemon exchange requests by.
public enum FUSETransport: String, Sendable, CaseIterable {
    /// read(2) and write(2) on `/dev/fuse`, fuse(4).
    case device
    /// FUSE over io_uring: Linux 6.14 with the module parameter `enable_uring`.
    case ioUring = "io-uring"
}
