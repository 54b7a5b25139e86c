import CWardLinux
import Glibc
import WardSystem

/// The buffers of one request and then of its reply: an entry of a queue, in terms of FUSE over
/// io_uring.
///
/// They are a page for the headers, and the payload with a spare page on either side. The request's
/// headers are put in front of the payload, so that it is read in one piece like one from the
/// device. Whole pages are decrypted right into the payload, though the first and the last may be
/// needed in part only.
struct RingEntry {
    static let marginBytes = 4096
    private static let payloadOffset = 4096 + marginBytes
    private static let mappedBytes = payloadOffset + Negotiation.maximumTransferBytes + marginBytes
    private static let structureOffset = MemoryLayout<fuse_uring_req_header>.offset(of: \.op_in)!
    private static let inHeaderBytes = MemoryLayout<fuse_in_header>.size

    /// The CPU whose requests the entry takes.
    let queue: UInt16
    private let memory: UnsafeMutableRawPointer
    /// The kernel's name of the request in the entry; 0: there is none, or it is answered.
    var commitID: UInt64 = 0
    /// How much of the payload may hold content, and whether the spare pages may.
    private var dirtyBytes = 0
    private var hasDirtyMargins = false

    /// Throws `ENOMEM`.
    init(queue: UInt16) throws(Errno) {
        self.queue = queue
        memory = try TransferMemory.map(RingEntry.mappedBytes)
    }

    func unmap() { TransferMemory.unmap(memory, RingEntry.mappedBytes) }

    private var header: UnsafeMutablePointer<fuse_uring_req_header> {
        memory.assumingMemoryBound(to: fuse_uring_req_header.self)
    }
    /// The bytes that the last request asks for if it was a READ; 0 for all others.
    private(set) var readBytes = 0
    var payload: UnsafeMutableRawPointer { memory + RingEntry.payloadOffset }

    /// The two buffers, as FUSE_IO_URING_CMD_REGISTER takes them.
    var buffers: (iovec, iovec) {
        (
            iovec(iov_base: memory, iov_len: MemoryLayout<fuse_uring_req_header>.size),
            iovec(iov_base: payload, iov_len: Negotiation.maximumTransferBytes)
        )
    }

    /// Returns the request that the kernel put here, in one piece; nil where it makes no sense.
    ///
    /// Wipes the rest of earlier requests: a worker that waits for a disk holds the content of no
    /// other request.
    mutating func takeRequest() -> Request? {
        let inner = header.pointee.ring_ent_in_out
        commitID = inner.commit_id
        wipe(keepingRequest: true)
        let payloadBytes = Int(inner.payload_sz)
        guard payloadBytes <= Negotiation.maximumTransferBytes else { return nil }
        dirtyBytes = payloadBytes
        readBytes = 0
        let inHeader = UnsafeRawPointer(memory).loadUnaligned(as: fuse_in_header.self)
        let structureBytes = Int(inHeader.len) - RingEntry.inHeaderBytes - payloadBytes
        guard (0...Int(FUSE_URING_OP_IN_BYTES)).contains(structureBytes) else { return nil }
        if inHeader.opcode == FUSE_READ.rawValue {
            // Content is decrypted into the payload. It stays there even if the reply is an error.
            let read = UnsafeRawPointer(memory + RingEntry.structureOffset)
                .loadUnaligned(as: fuse_read_in.self)
            readBytes = min(Int(read.size), Negotiation.maximumTransferBytes)
            dirtyBytes = readBytes
            hasDirtyMargins = true
        }
        let structure = payload - structureBytes
        structure.copyMemory(
            from: memory + RingEntry.structureOffset, byteCount: structureBytes)
        let start = structure - RingEntry.inHeaderBytes
        start.storeBytes(of: inHeader, as: fuse_in_header.self)
        return Request(UnsafeRawBufferPointer(start: start, count: Int(inHeader.len)))
    }

    /// Puts the reply where the kernel reads it. `content` may be the beginning of `payload`
    /// already.
    mutating func putReply(_ outHeader: fuse_out_header, _ content: UnsafeRawBufferPointer) {
        var outHeader = outHeader
        var count = content.count
        if count > Negotiation.maximumTransferBytes {
            outHeader.error = -EIO
            count = 0
        }
        if count > 0, content.baseAddress != UnsafeRawPointer(payload) {
            payload.copyMemory(from: content.baseAddress!, byteCount: count)
        }
        dirtyBytes = max(dirtyBytes, count)
        memory.storeBytes(of: outHeader, as: fuse_out_header.self)
        header.pointee.ring_ent_in_out.payload_sz = UInt32(truncatingIfNeeded: count)
    }

    /// Wipes what was served. `keepingRequest`: keeps the next request, which the kernel has put
    /// here.
    mutating func wipe(keepingRequest: Bool = false) {
        let keptBytes =
            keepingRequest
            ? min(Int(header.pointee.ring_ent_in_out.payload_sz), Negotiation.maximumTransferBytes)
            : 0
        var end = dirtyBytes
        if hasDirtyMargins {
            explicit_bzero(payload - RingEntry.marginBytes, RingEntry.marginBytes)
            end += RingEntry.marginBytes
        }
        if end > keptBytes { explicit_bzero(payload + keptBytes, end - keptBytes) }
        dirtyBytes = 0
        hasDirtyMargins = false
    }
}
