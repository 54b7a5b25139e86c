import Glibc
import Synchronization

/// The note of a command that Ctrl-C ends, said before it goes.
enum InterruptionNote {
    /// The process ends by the signal all the same, as its caller wants to see. `note`: whole
    /// lines.
    static func arm(_ note: StaticString) {
        noteStart.store(UInt(bitPattern: note.utf8Start), ordering: .relaxed)
        noteBytes.store(note.utf8CodeUnitCount, ordering: .relaxed)
        // Nothing but system calls in it, signal-safety(7).
        signal(SIGINT) { number in
            write(
                STDERR_FILENO, UnsafeRawPointer(bitPattern: noteStart.load(ordering: .relaxed)),
                noteBytes.load(ordering: .relaxed))
            signal(number, SIG_DFL)
            raise(number)
        }
    }
}

// The note belongs to the module, not to the type: a function that a signal calls captures nothing.
private let noteStart = Atomic<UInt>(0)
private let noteBytes = Atomic<Int>(0)
