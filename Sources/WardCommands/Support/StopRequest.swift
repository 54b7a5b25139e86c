import Glibc
import Synchronization

/// Ctrl-C, for a command that ends at a good place after it.
enum StopRequest {
    /// Takes the first Ctrl-C, or `SIGTERM`, as a request. The second one ends the process.
    static func arm() {
        for number in [SIGINT, SIGTERM] {
            signal(number) { number in
                // Only an atomic and a system call here, signal-safety(7).
                isRequested.store(true, ordering: .relaxed)
                signal(number, SIG_DFL)
            }
        }
    }

    static var isMade: Bool { isRequested.load(ordering: .relaxed) }
}

// Global, because a signal handler can't capture anything.
private let isRequested = Atomic<Bool>(false)
