import CWardLinux

/// Chooses the CPUs of a queue's worker: the queue's CPU, or any while it serves large reads or
/// waits for a disk.
///
/// The cost of a small request is its wake-ups. They cost least on the CPU of the program, which
/// sleeps meanwhile. The cost of a large read is reading and deciphering, and the kernel asks for
/// the next one before the program needs it. On the program's CPU all of it would run one after the
/// other, beside idle CPUs. A disk wakes the waiting worker on the CPU that gets the interrupt. The
/// program's CPU sleeps, and would have to be woken first.
struct RingPlacement {
    /// A smaller read that took so long waited for a disk, nanoseconds. With the content in memory
    /// it takes a tenth of that.
    static let waitNanoseconds: UInt64 = 40_000
    /// After so many other requests in a row the worker goes back to its CPU.
    static let patience = 4

    private let cpu: UInt32
    /// Requests since the last large read, or the last that waited; nil on the CPU of the queue.
    private var others: Int?

    /// Moves the calling thread to `cpu`. Nil where it can't have that CPU: then it stays where it
    /// is.
    init?(cpu: UInt16) {
        self.cpu = UInt32(cpu)
        guard ward_run_on_cpu(self.cpu) == 0 else { return nil }
    }

    /// Places the worker before a request. `readBytes`: the size of a READ; 0 for all other
    /// requests.
    @inline(__always)
    mutating func follow(readBytes: Int) {
        if readBytes >= Request.largeBytes {
            leave()
        } else if let count = others {
            others = count + 1
            guard count + 1 >= RingPlacement.patience else { return }
            others = ward_run_on_cpu(cpu) == 0 ? nil : 0
        }
    }

    /// Notes that a READ was answered, and the nanoseconds that it took.
    @inline(__always)
    mutating func noteRead(tookNanoseconds: UInt64) {
        if tookNanoseconds >= RingPlacement.waitNanoseconds { leave() }
    }

    private mutating func leave() {
        if others == nil, ward_run_anywhere() != 0 { return }
        others = 0
    }
}
