import CWardLinux
import Glibc
import WardSystem

/// Replies and notifications by write(2) to a descriptor of `/dev/fuse`: the one the request was
/// read from.
struct DeviceChannel: ReplyChannel, @unchecked Sendable {
    // Sendable: only the worker's own thread uses `transport`; `elsewhere` leaves it out.
    let descriptor: Int32
    /// Is told of a reply before it goes out. An array of optionals with `unowned(unsafe)` is
    /// misread without optimisation (Swift 6.3).
    private let transport: Unmanaged<DeviceTransport>?

    let holdsUpOthers: Bool

    init(descriptor: Int32, transport: DeviceTransport? = nil, holdsUpOthers: Bool = false) {
        self.descriptor = descriptor
        self.holdsUpOthers = holdsUpOthers
        self.transport = transport.map(Unmanaged.passUnretained)
    }

    var elsewhere: DeviceChannel { DeviceChannel(descriptor: descriptor) }

    @inline(__always)
    func send(_ message: UnsafeRawBufferPointer) -> Bool {
        transport?._withUnsafeGuaranteedRef { $0.noteAnswer() }
        while true {
            if write(descriptor, message.baseAddress, message.count) >= 0 { return true }
            if ward_errno() != EINTR { return false }
        }
    }

    @inline(__always)
    func send(_ head: UnsafeRawBufferPointer, _ payload: UnsafeRawBufferPointer) -> Bool {
        transport?._withUnsafeGuaranteedRef { $0.noteAnswer() }
        var parts = (
            iovec(
                iov_base: UnsafeMutableRawPointer(mutating: head.baseAddress), iov_len: head.count),
            iovec(
                iov_base: UnsafeMutableRawPointer(mutating: payload.baseAddress),
                iov_len: payload.count)
        )
        return withUnsafeBytes(of: &parts) { parts in
            let vector = parts.baseAddress!.assumingMemoryBound(to: iovec.self)
            while true {
                if writev(descriptor, vector, 2) >= 0 { return true }
                if ward_errno() != EINTR { return false }
            }
        }
    }
}

extension ReplyChannel {
    /// A reply without content: success, or the error.
    @inline(__always)
    func complete(_ unique: UInt64, error: Int32 = 0) {
        var header = fuse_out_header(
            len: UInt32(MemoryLayout<fuse_out_header>.size), error: error, unique: unique)
        _ = withUnsafeBytes(of: &header) { send($0) }
    }

    /// A reply of one structure.
    func complete<T: BitwiseCopyable>(_ unique: UInt64, with value: T) {
        let headBytes = MemoryLayout<fuse_out_header>.size
        let head = fuse_out_header(
            len: UInt32(headBytes + MemoryLayout<T>.size), error: 0, unique: unique)
        _ = withUnsafeBytes(of: head) { head in
            withUnsafeBytes(of: value) { send(head, $0) }
        }
    }
}
