import WardVolume

/// Where requests come from. One value for each worker thread; used by that thread alone.
///
/// `/dev/fuse` by read(2) is the one there is; FUSE over io_uring has the same shape. Workers are generic over it, so
/// the choice costs nothing for each request.
protocol RequestTransport {
    associatedtype Channel: ReplyChannel
    /// Waits for the next request; nil when the kernel has ended the connection. The request lies in this transport's
    /// buffer until the next call.
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
}
