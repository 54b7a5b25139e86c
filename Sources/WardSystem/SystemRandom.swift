import CWardLinux
import Glibc

/// The kernel's random generator, getrandom(2).
public enum SystemRandom {
    /// Fills `buffer`; can't fail on any kernel ward runs on once the pool is initialised, which it
    /// waits for.
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

    /// `count` random bytes that are not secret: identifiers, salts, nonces.
    public static func bytes(_ count: Int) -> [UInt8] {
        [UInt8](unsafeUninitializedCapacity: count) { buffer, initialized in
            fill(UnsafeMutableRawBufferPointer(buffer))
            initialized = count
        }
    }
}
