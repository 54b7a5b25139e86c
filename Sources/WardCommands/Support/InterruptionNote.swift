import Glibc
import Synchronization

/// A note that is printed when Ctrl-C ends a command.
enum InterruptionNote {
    /// Installs the note: whole lines. The signal still ends the process, because its caller
    /// expects that.
    static func arm(_ note: StaticString) {
        noteStart.store(UInt(bitPattern: note.utf8Start), ordering: .relaxed)
        noteBytes.store(note.utf8CodeUnitCount, ordering: .relaxed)
        // Only system calls here, signal-safety(7).
        signal(SIGINT) { number in
            write(
                STDERR_FILENO, UnsafeRawPointer(bitPattern: noteStart.load(ordering: .relaxed)),
                noteBytes.load(ordering: .relaxed))
            signal(number, SIG_DFL)
            raise(number)
        }
    }
}

// Global, because a signal handler can't capture anything.
private let noteStart = Atomic<UInt>(0)
private let noteBytes = Atomic<Int>(0)
