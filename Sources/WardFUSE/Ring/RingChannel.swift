import CWardLinux

/// The channel for the reply to a request in an entry of a ring. Used by that ring's thread.
struct RingChannel: ReplyChannel, @unchecked Sendable {
    // Sendable: never handed to another thread, as a worker with a ring does everything itself.
    private unowned(unsafe) let transport: RingTransport
    private let index: Int

    init(transport: RingTransport, index: Int) {
        self.transport = transport
        self.index = index
    }

    @inline(__always)
    func send(_ message: UnsafeRawBufferPointer) -> Bool {
        let headBytes = MemoryLayout<fuse_out_header>.size
        transport.answer(
            index, message.loadUnaligned(as: fuse_out_header.self),
            UnsafeRawBufferPointer(rebasing: message.dropFirst(headBytes)))
        return true
    }

    @inline(__always)
    func send(_ head: UnsafeRawBufferPointer, _ payload: UnsafeRawBufferPointer) -> Bool {
        transport.answer(index, head.loadUnaligned(as: fuse_out_header.self), payload)
        return true
    }

    var contentTarget: UnsafeMutableRawPointer? { transport.contentTarget(index) }

    static var isForAnyThread: Bool { false }

    var hasCompany: Bool { transport.hasCompany }
}
