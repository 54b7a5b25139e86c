import Foundation

/// A process that removes what a run has left once the run ends, also when the run was killed.
final class Janitor: Sendable {
    private let child: Child
    /// Closed by the kernel when this process ends; the janitor waits for that.
    private let writing: Int32

    /// `base`: the directory of the run's mounts and files. Processes that the run starts have it
    /// in their arguments.
    init(of base: String) throws {
        let pipe = try Child.pipe()
        defer { close(pipe.reading) }
        child = try Child(
            ["sh", "-c", Janitor.script],
            environment: ["PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            input: pipe.reading)
        writing = pipe.writing
        // By the pipe, because a process with the base in its arguments would be found as one of
        // the run.
        _ = "\(base)\n".withCString { write(writing, $0, strlen($0)) }
    }

    /// At the end of the run.
    func cleanUp() {
        close(writing)
        _ = child.wait(seconds: 60)
    }

    private static let script = #"""
        trap '' HUP INT TERM
        IFS= read -r base && cat >/dev/null
        case $base in /tmp/ward-tests-??????) ;; *) exit 1 ;; esac
        # What was at work may take a moment to end.
        for _ in $(seq 100); do
            awk -v base="$base/" 'index($5, base) == 1 { print $5 }' /proc/self/mountinfo | tac |
                while read -r mount; do
                    umount -l "$mount" 2>/dev/null || fusermount3 -uz "$mount" 2>/dev/null
                done
            {
                grep -lsaF -- "$base/" /proc/[0-9]*/cmdline
                find /proc/[0-9]*/exe -maxdepth 0 -lname "$base/*" 2>/dev/null
            } | cut -d / -f 3 | sort -u | xargs -r kill -KILL 2>/dev/null
            rm -rf --one-file-system "$base" 2>/dev/null
            [ -e "$base" ] || exit 0
            sleep 0.1
        done
        exit 1
        """#
}
