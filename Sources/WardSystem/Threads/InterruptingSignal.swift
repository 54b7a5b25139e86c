import CWardLinux
import Glibc

/// A signal that only ends the system call in which a thread sleeps (`EINTR`, signal(7)).
///
/// Threads block it (`SystemThread`) except while `whileAccepting` runs. A late signal waits for
/// the next such time, and disturbs no other call.
public enum InterruptingSignal {
    private static let number: Int32 = {
        let number = ward_first_realtime_signal() + 4
        var action = sigaction()
        // Without SA_RESTART the call returns.
        action.__sigaction_handler.sa_handler = { _ in }
        sigaction(number, &action, nil)
        return number
    }()

    /// Runs `body`, whose system calls can be interrupted.
    public static func whileAccepting<R>(_ body: () -> R) -> R {
        var only = sigset_t()
        var before = sigset_t()
        sigemptyset(&only)
        sigaddset(&only, number)
        pthread_sigmask(SIG_UNBLOCK, &only, &before)
        defer { pthread_sigmask(SIG_SETMASK, &before, nil) }
        return body()
    }

    /// All signals except this one, for a call that takes a mask for its duration, as
    /// io_uring_enter(2) does.
    public static let others: sigset_t = {
        var mask = sigset_t()
        sigfillset(&mask)
        sigdelset(&mask, number)
        return mask
    }()

    /// Interrupts a thread that has not been joined.
    public static func send(to thread: pthread_t) { pthread_kill(thread, number) }
}
