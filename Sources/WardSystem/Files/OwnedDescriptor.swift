import Glibc

/// A file descriptor with one owner, closed when the owner goes.
public struct OwnedDescriptor: ~Copyable, Sendable {
    /// The number of the descriptor; valid as long as this value lives.
    public let rawValue: Int32

    /// Takes over a descriptor that no other code closes.
    public init(adopting rawValue: Int32) {
        precondition(rawValue >= 0, "a descriptor is never negative")
        self.rawValue = rawValue
    }

    public init(opening path: String, _ flags: Int32, mode: mode_t = 0) throws(Errno) {
        self.init(adopting: try Syscall.open(path, flags, mode: mode))
    }

    /// Closes now and throws the kernel's error: for written files, where it may mean a lost write.
    public consuming func close() throws(Errno) {
        let descriptor = rawValue
        discard self
        if Glibc.close(descriptor) != 0 { throw Errno(rawValue: errno) }
    }

    /// Gives the descriptor up without closing it.
    public consuming func release() -> Int32 {
        let descriptor = rawValue
        discard self
        return descriptor
    }

    deinit {
        _ = Glibc.close(rawValue)
    }
}
