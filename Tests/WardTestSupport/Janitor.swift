import Foundation

/// A process that removes what a run has left, once the run ends, however it does: who is killed
/// cleans up nothing.
final class Janitor: Sendable {
    private let child: Child
    /// Closed by the kernel when this process ends.
    private let writing: Int32

    /// `base`: the directory of the run's mounts and files, which what it starts names.
    init(of base: String) throws {
        let pipe = try Child.pipe()
        defer { close(pipe.reading) }
        child = try Child(
            ["sh", "-c", Janitor.script],
            environment: ["PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            input: pipe.reading)
        writing = pipe.writing
        // Not as an argument: it would be found as one that names the base.
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
