import CWardLinux
import Glibc

/// A thread of one's own: what blocks in system calls stays off the pool of Swift's concurrency. pthread_create(3).
public final class ServiceThread: @unchecked Sendable {
    // Sendable: written once, before the thread is shared.
    private var thread = pthread_t()

    private final class Start {
        let name: String
        let body: @Sendable () -> Void
        init(name: String, body: @escaping @Sendable () -> Void) {
            self.name = name
            self.body = body
        }
    }

    /// Starts `body`; `name` (15 bytes at most) is what ps(1) shows. It must be joined or detached.
    public init(_ name: String, _ body: @escaping @Sendable () -> Void) {
        let start = Unmanaged.passRetained(Start(name: name, body: body))
        let result = pthread_create(
            &thread, nil,
            { argument in
                let start = Unmanaged<Start>.fromOpaque(argument!).takeRetainedValue()
                start.name.withCString {
                    _ = ward_prctl(PR_SET_NAME, UInt(bitPattern: $0))
                }
                start.body()
                return nil
            }, start.toOpaque())
        precondition(result == 0, "no thread can be started: errno \(result)")
    }

    /// Waits for the end.
    public func join() { pthread_join(thread, nil) }

    /// Gives up waiting for it.
    public func detach() { pthread_detach(thread) }
}
