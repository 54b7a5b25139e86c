import Glibc
import WardSystem

/// What one thread needs to serve requests: page buffers and its slot in the class gate. Created by the thread that
/// uses it, used by no other.
public final class WorkerContext {
    /// Largest read or write served at once, bytes (FUSE `max_write`).
    public static let maximumTransferBytes = 1 << 20

    unowned let volume: Volume

    public init(volume: Volume) {
        self.volume = volume
    }
}
