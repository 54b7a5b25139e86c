import CWardLinux

/// Which CPUs the worker of a queue runs on: that of the queue, or any while it serves large reads
/// or waits for a disk.
///
/// What a small request costs is wake-ups, and those are cheapest on the CPU of the program, which
/// sleeps meanwhile. What a large read costs is reading and deciphering, and the kernel asks for
/// the next one before the program needs it: on the program's own CPU all of it would wait for each
/// other, beside CPUs with nothing to do. What waits for a disk is woken by that, on whatever CPU
/// it tells, and the program's CPU, which sleeps, would have to be woken for the worker first.
struct RingPlacement {
    /// A smaller one that took so long waited for a disk, nanoseconds: with the store in memory it
    /// is a tenth of that.
    static let waitNanoseconds: UInt64 = 40_000
    /// So many other requests in a row, and the worker is back on its CPU.
    static let patience = 4

    private let cpu: UInt32
    /// Others since the last large read, or the last that waited; nil on the CPU of the queue.
    private var others: Int?

    /// For the thread that calls, which is moved to `cpu`. Nil where it can't have that CPU: then
    /// it stays where it is.
    init?(cpu: UInt16) {
        self.cpu = UInt32(cpu)
        guard ward_run_on_cpu(self.cpu) == 0 else { return nil }
    }

    /// Before a request is served. `readBytes`: what a READ asks for; 0 for all others.
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

    /// After a READ was answered, which took so many nanoseconds.
    @inline(__always)
    mutating func noteRead(tookNanoseconds: UInt64) {
        if tookNanoseconds >= RingPlacement.waitNanoseconds { leave() }
    }

    private mutating func leave() {
        if others == nil, ward_run_anywhere() != 0 { return }
        others = 0
    }
}
