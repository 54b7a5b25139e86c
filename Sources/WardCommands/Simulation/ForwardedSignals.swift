import CWardLinux
import Glibc

/// Signals that a command under test is to get instead of this process, which has to clean up after
/// it.
struct ForwardedSignals {
    static let numbers = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2]
    /// `siginfo_t.si_code` of what the kernel sends by itself, sigaction(2): a terminal's keys,
    /// which all programs in the foreground have got already.
    private static let fromKernel: Int32 = 0x80
    private var waited = sigset_t()

    /// Holds them back from now on.
    init() {
        sigemptyset(&waited)
        for number in ForwardedSignals.numbers + [SIGCHLD] { sigaddset(&waited, number) }
        sigprocmask(SIG_BLOCK, &waited, nil)
    }

    /// One that came and would have ended this process; nil where none has.
    var pending: Int32? {
        var set = sigset_t()
        guard sigpending(&set) == 0 else { return nil }
        return [SIGINT, SIGTERM, SIGHUP, SIGQUIT].first { sigismember(&set, $0) == 1 }
    }

    /// Until the child ends: its exit code, or 128 and the number of the signal that ended it.
    /// `deliver`: in place of sending a signal to the child. `keysToo`: also those that a
    /// terminal's keys sent to this process, where the command has not got them: it runs in a
    /// session of its own.
    func forward(
        to child: ChildProcess, keysToo: Bool = false, by deliver: ((Int32) -> Void)? = nil
    ) -> Int32 {
        var waited = waited
        while true {
            var information = siginfo_t()
            let number = sigwaitinfo(&waited, &information)
            if number == SIGCHLD {
                var status: Int32 = 0
                let reaped = waitpid(child.pid, &status, WNOHANG)
                guard reaped != 0 else { continue }
                if reaped < 0 { return 127 }
                return ward_wifexited(status) != 0
                    ? ward_wexitstatus(status) : 128 + ward_wtermsig(status)
            }
            if number > 0, keysToo || information.si_code != ForwardedSignals.fromKernel {
                if let deliver { deliver(number) } else { kill(child.pid, number) }
            }
        }
    }
}
