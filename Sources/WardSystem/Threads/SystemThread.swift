import CWardLinux
import Glibc

/// A thread outside of Swift's concurrency, pthread_create(3), for calls that block.
///
/// All signals are blocked in it: they belong to the thread that waits for them. It is bound to no
/// CPU and does not yield, even if the thread that starts it is or does.
public struct SystemThread: @unchecked Sendable {
    // Sendable: a thread's handle means the same in every thread.
    /// The size of a thread's stack, if the caller gives none.
    public static let stackBytes = 1 << 20
    private let handle: pthread_t

    private final class Start {
        let name: String
        let body: @Sendable () -> Void
        /// Whether the starting thread is bound to a CPU: the new one inherits that.
        let isBound = ward_is_bound() != 0
        init(_ name: String, _ body: @escaping @Sendable () -> Void) {
            self.name = name
            self.body = body
        }
    }

    /// Starts `body`. ps(1) shows `name`, at most 15 bytes. The thread must be joined or detached.
    /// Throws `EAGAIN` where there can't be more threads.
    public init(
        _ name: String, stackBytes: Int = SystemThread.stackBytes,
        _ body: @escaping @Sendable () -> Void
    ) throws(Errno) {
        var attributes = pthread_attr_t()
        pthread_attr_init(&attributes)
        pthread_attr_setstacksize(&attributes, stackBytes)
        defer { pthread_attr_destroy(&attributes) }
        // Another thread may have made this one yield.
        if ward_giving_way_is_used() != 0, ward_thread_gives_way(0) != 0 {
            pthread_attr_setinheritsched(&attributes, Int32(PTHREAD_EXPLICIT_SCHED))
            pthread_attr_setschedpolicy(&attributes, SCHED_OTHER)
        }
        var all = sigset_t()
        var previous = sigset_t()
        sigfillset(&all)
        pthread_sigmask(SIG_SETMASK, &all, &previous)
        defer { pthread_sigmask(SIG_SETMASK, &previous, nil) }

        let start = Unmanaged.passRetained(Start(name, body))
        var thread = pthread_t()
        var reason = SystemThread.create(&thread, &attributes, start)
        // This thread may have lost the right to undo its yielding: then the new one inherits it.
        if reason == EPERM {
            pthread_attr_setinheritsched(&attributes, Int32(PTHREAD_INHERIT_SCHED))
            reason = SystemThread.create(&thread, &attributes, start)
        }
        guard reason == 0 else {
            start.release()
            throw Errno(rawValue: reason)
        }
        handle = thread
    }

    private static func create(
        _ thread: inout pthread_t, _ attributes: inout pthread_attr_t, _ start: Unmanaged<Start>
    ) -> Int32 {
        pthread_create(
            &thread, &attributes,
            { argument in
                let start = Unmanaged<Start>.fromOpaque(argument!).takeRetainedValue()
                start.name.withCString { name in
                    _ = ward_prctl(PR_SET_NAME, UInt(bitPattern: name))
                }
                if start.isBound { _ = ward_run_anywhere() }
                // The starting thread may have been made to yield after the look in `init`.
                if ward_giving_way_is_used() != 0, ward_thread_gives_way(0) != 0 {
                    _ = ward_give_way(0)
                }
                start.body()
                // glibc keeps the stack for the next thread.
                ward_scrub_thread()
                return nil
            }, start.toOpaque())
    }

    /// Starts a thread that the program can't go on without.
    public static func start(
        _ name: String, _ body: @escaping @Sendable () -> Void
    ) -> SystemThread {
        do throws(Errno) {
            return try SystemThread(name, body)
        } catch {
            preconditionFailure("no thread can be started: \(error)")
        }
    }

    /// The same, for a thread that is never joined.
    public static func startDetached(_ name: String, _ body: @escaping @Sendable () -> Void) {
        start(name, body).detach()
    }

    /// Waits for the thread's end. Each thread is joined once, or detached.
    public func join() { pthread_join(handle, nil) }

    /// Gives up joining the thread.
    public func detach() { pthread_detach(handle) }
}
