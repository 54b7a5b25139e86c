import CWardLinux
import Glibc
import WardSystem

/// Leads a connection that has agreed to io_uring back to the device. The kernel holds all requests
/// back until it has either rings or a refusal.
///
/// It takes a ring itself. It is made before the workers' rings, which may use up the memory for
/// rings (`RLIMIT_MEMLOCK`). Used by the thread that made it.
final class RingRefusal {
    private var ring = ward_ring()

    /// Throws the errors of ward_ring_open. Waits a second where there is no memory: that of other
    /// rings comes back some time after they end.
    init() throws(Errno) {
        var result = ward_ring_open(&ring, 1)
        for _ in 0..<100 where result == -ENOMEM {
            usleep(10_000)
            result = ward_ring_open(&ring, 1)
        }
        guard result == 0 else { throw Errno(rawValue: 0 &- result) }
    }

    deinit { ward_ring_close(&ring) }

    /// Makes the kernel send requests to `device` for good, which it does after the first
    /// registration that fails (`fuse_uring_cmd`, fs/fuse/dev_uring.c). Throws where the kernel
    /// does not.
    func refuse(_ device: Int32) throws(Errno) {
        var none = (iovec(), iovec())
        var result = withUnsafeBytes(of: &none) { bytes in
            let vector = bytes.baseAddress!.assumingMemoryBound(to: iovec.self)
            // A queue with this number does not exist.
            let result = ward_ring_register(&ring, device, .max, vector, 0)
            return result == 0 ? ward_ring_submit(&ring) : result
        }
        guard result == 0 else { throw Errno(rawValue: 0 &- result) }
        _ = ward_ring_look(&ring)
        var tag: UInt64 = 0
        guard ward_ring_next(&ring, &tag, &result) == 1 else { throw Errno(rawValue: EIO) }
        switch 0 &- result {
        // FUSE's own answers: no such queue; no memory for it; the connection has ended, or was
        // aborted; io_uring is off.
        case EINVAL, ENOMEM, ENOTCONN, ECONNABORTED, EOPNOTSUPP: return
        // A security module, which the kernel asks before FUSE.
        default: throw Errno(rawValue: result == 0 ? EIO : 0 &- result)
        }
    }
}
