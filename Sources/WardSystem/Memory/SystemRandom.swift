import CWardLinux
import Glibc

/// The kernel's random generator, getrandom(2).
public enum SystemRandom {
    /// Fills `buffer`. Waits until the kernel's pool is initialised; then it can't fail on any
    /// kernel that ward runs on.
    public static func fill(_ buffer: UnsafeMutableRawBufferPointer) {
        var done = 0
        while done < buffer.count {
            let got = getrandom(buffer.baseAddress! + done, buffer.count - done, 0)
            if got < 0 {
                precondition(errno == EINTR, "getrandom(2) failed: no secure randomness, no ward")
                continue
            }
            done += got
        }
    }

    /// Returns `count` random bytes that are not secret: identifiers, salts, nonces.
    public static func bytes(_ count: Int) -> [UInt8] {
        [UInt8](unsafeUninitializedCapacity: count) { buffer, initialized in
            fill(UnsafeMutableRawBufferPointer(buffer))
            initialized = count
        }
    }
}
