import CWardLinux
import Glibc
import WardSystem

/// A thread of ours that blocks in system calls: named, deaf to signals, with a small stack.
///
/// Requests are served outside the cooperative pool, whose threads must not block.
struct ServingThread: @unchecked Sendable {
    // Sendable: a thread's handle means the same in every thread.
    private static let stackBytes = 1 << 20
    private let handle: pthread_t

    private final class Start {
        let name: String
        let body: @Sendable () -> Void
        init(_ name: String, _ body: @escaping @Sendable () -> Void) {
            self.name = name
            self.body = body
        }
    }

    /// `name`: at most 15 bytes. Throws `EAGAIN` where there can't be more threads.
    init(_ name: String, _ body: @escaping @Sendable () -> Void) throws(Errno) {
        var attributes = pthread_attr_t()
        pthread_attr_init(&attributes)
        pthread_attr_setstacksize(&attributes, ServingThread.stackBytes)
        defer { pthread_attr_destroy(&attributes) }
        // The mask is inherited: signals are for the thread that waits for them.
        var all = sigset_t()
        var previous = sigset_t()
        sigfillset(&all)
        pthread_sigmask(SIG_SETMASK, &all, &previous)
        defer { pthread_sigmask(SIG_SETMASK, &previous, nil) }

        let start = Unmanaged.passRetained(Start(name, body))
        var thread = pthread_t()
        let reason = pthread_create(
            &thread, &attributes,
            { argument in
                let start = Unmanaged<Start>.fromOpaque(argument!).takeRetainedValue()
                start.name.withCString { name in
                    _ = ward_prctl(PR_SET_NAME, UInt(bitPattern: name))
                }
                start.body()
                return nil
            }, start.toOpaque())
        guard reason == 0 else {
            start.release()
            throw Errno(rawValue: reason)
        }
        handle = thread
    }

    /// Waits for its end. Every thread is waited for once.
    func join() {
        pthread_join(handle, nil)
    }
}
