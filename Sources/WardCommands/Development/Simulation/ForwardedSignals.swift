import CWardLinux
import Glibc

/// Signals that go to a command instead of this process, which must clean up after the command.
struct ForwardedSignals {
    static let numbers = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2]
    /// `siginfo_t.si_code` of signals from the kernel, sigaction(2). These come from a terminal's
    /// keys, and every foreground program has got them already.
    private static let fromKernel: Int32 = 0x80
    private var waited = sigset_t()

    /// Blocks the signals from now on.
    init() {
        sigemptyset(&waited)
        for number in ForwardedSignals.numbers + [SIGCHLD] { sigaddset(&waited, number) }
        sigprocmask(SIG_BLOCK, &waited, nil)
    }

    /// A blocked signal that would have ended this process; nil without one.
    var pending: Int32? {
        var set = sigset_t()
        guard sigpending(&set) == 0 else { return nil }
        return [SIGINT, SIGTERM, SIGHUP, SIGQUIT].first { sigismember(&set, $0) == 1 }
    }

    /// Forwards signals until the child ends. Returns its exit code, or 128 plus the number of the
    /// signal that ended it.
    ///
    /// - Parameters:
    ///   - keysToo: Also forward signals of a terminal's keys, for a command in another session.
    ///   - deliver: Called instead of kill(2) on the child.
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
