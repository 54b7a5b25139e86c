import CWardLinux

/// A completion of a ring.
struct RingCompletion {
    private(set) var tag: UInt64 = 0
    /// 0 or a negative errno.
    private(set) var result: Int32 = 0

    /// Takes the next completion; false where there is none.
    @inline(__always)
    mutating func take(_ ring: inout ward_ring) -> Bool {
        ward_ring_next(&ring, &tag, &result) == 1
    }

    /// Reads the completion `number` after the next, and takes none; false where there is none.
    mutating func peek(_ ring: inout ward_ring, _ number: UInt32 = 0) -> Bool {
        ward_ring_peek(&ring, number, &tag, &result) == 1
    }
}
