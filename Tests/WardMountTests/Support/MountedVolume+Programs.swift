import Foundation
import Testing

extension MountedVolume {
    /// Runs a shell script as this volume's user with the mount point in `$MNT`. The test fails if
    /// the script fails.
    @discardableResult
    func shell(
        _ script: String, seconds: Double = 120, sourceLocation: SourceLocation = #_sourceLocation
    ) throws -> String {
        var variables = environment
        variables["MNT"] = mountPoint
        variables["OUT"] = directory + "/home"
        let done = try Child.run(
            user.prefix + ["bash", "-euo", "pipefail", "-c", script], environment: variables,
            seconds: seconds)
        #expect(
            done.succeeded, "as \(user.rawValue): \(done.everything)",
            sourceLocation: sourceLocation)
        return done.output
    }

    /// Runs `ward` in a mount namespace without a ward mount: a command that finds its volume by
    /// itself finds those of other tests otherwise. Takes root.
    func wardAlone(_ arguments: String...) throws -> Finished {
        let script = #"""
            grep ' fuse\.ward ' /proc/mounts | cut -d ' ' -f 2 | while read -r place; do
                umount -l "$(printf %b "$place")"
            done
            exec "$@"
            """#
        return try Child.run(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"]
                + user.prefix + [TestEnvironment.shared.ward] + arguments, environment: environment)
    }

    /// The default script of `copyStore`.
    static let copyingScript = #"cp -a "$FROM" "$TO""#

    /// Copies the store, mounted or not, to `path`, which must not exist. `tool`: a script that
    /// copies `$FROM` to `$TO`.
    ///
    /// The daemon of a mounted volume replaces `ward.state` by a rename at any time. If the tool
    /// listed the new file's first name and finds it gone, the copy starts again.
    func copyStore(
        to path: String, by tool: String = copyingScript,
        sourceLocation: SourceLocation = #_sourceLocation
    ) throws {
        try shell(
            """
            FROM='\(volume)' TO='\(path)'
            copy() { \(tool); }
            for _ in 1 2 3 4; do
                copy && exit
                rm -rf "$TO"
            done
            copy
            """, sourceLocation: sourceLocation)
    }

    /// A probe of this volume's user at the mount point.
    func probe() throws -> Probe { try Probe(as: user, base: mountPoint) }
}
