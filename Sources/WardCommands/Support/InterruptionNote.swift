import Glibc
import Synchronization

/// What a command that Ctrl-C ends says before it goes.
enum InterruptionNote {
    /// The process ends by the signal all the same, as its caller wants to see. `note`: whole lines.
    static func arm(_ note: StaticString) {
        start.store(UInt(bitPattern: note.utf8Start), ordering: .relaxed)
        count.store(note.utf8CodeUnitCount, ordering: .relaxed)
        // Nothing but system calls in it, signal-safety(7).
        signal(SIGINT) { number in
            write(
                STDERR_FILENO,
                UnsafeRawPointer(bitPattern: InterruptionNote.start.load(ordering: .relaxed)),
                InterruptionNote.count.load(ordering: .relaxed))
            signal(number, SIG_DFL)
            raise(number)
        }
    }

    private static let start = Atomic<UInt>(0)
    private static let count = Atomic<Int>(0)
}
