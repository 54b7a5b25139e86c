import CWardLinux
import Glibc
import WardSystem

/// The way back to the device for a connection that has agreed to io_uring: the kernel holds every
/// request back until it has either rings or a refusal.
///
/// It takes a ring itself, and is made before the workers', which may use up what memory there is
/// for rings (`RLIMIT_MEMLOCK`). Used by the thread that made it.
final class RingRefusal {
    private var ring = ward_ring()

    /// Throws what ward_ring_open does; waits for a second where there is no memory, as what rings
    /// of others had comes back later than they end.
    init() throws(Errno) {
        var result = ward_ring_open(&ring, 1)
        for _ in 0..<100 where result == -ENOMEM {
            usleep(10_000)
            result = ward_ring_open(&ring, 1)
        }
        guard result == 0 else { throw Errno(rawValue: 0 &- result) }
    }

    deinit { ward_ring_close(&ring) }

    /// Makes the kernel send requests to `device` for good: the first registration that fails does
    /// (`fuse_uring_cmd`, fs/fuse/dev_uring.c). Throws where that can't be done.
    func refuse(_ device: Int32) throws(Errno) {
        var none = (iovec(), iovec())
        var result = withUnsafeBytes(of: &none) { bytes in
            let vector = bytes.baseAddress!.assumingMemoryBound(to: iovec.self)
            // There is no such queue.
            let result = ward_ring_register(&ring, device, .max, vector, 0)
            return result == 0 ? ward_ring_submit(&ring) : result
        }
        guard result == 0 else { throw Errno(rawValue: 0 &- result) }
        _ = ward_ring_look(&ring)
        var tag: UInt64 = 0
        guard ward_ring_next(&ring, &tag, &result) == 1 else { throw Errno(rawValue: EIO) }
        switch 0 &- result {
        // FUSE's own answers: no such queue; nothing to make it in; nobody is there any more; it is
        // off.
        case EINVAL, ENOMEM, ENOTCONN, ECONNABORTED, EOPNOTSUPP: return
        // Somebody who was asked before it: a security module.
        default: throw Errno(rawValue: result == 0 ? EIO : 0 &- result)
        }
    }
}
