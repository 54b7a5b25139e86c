import Foundation
import Testing

extension MountedVolume {
    /// Runs a script with a shell function `backup` for `Scripts/backup.py`, the volume in `$VOL`,
    /// and ward in `$WARD`.
    @discardableResult
    func backupShell(
        _ script: String, seconds: Double = 180, sourceLocation: SourceLocation = #_sourceLocation
    ) throws -> String {
        let environment = TestEnvironment.shared
        // The directory for lists, also of a command that is killed.
        variables["TMPDIR"] = directory + "/home"
        return try shell(
            """
            export VOL='\(volume)' WARD='\(environment.ward)'
            backup() { '\(environment.python)' -B '\(environment.script("backup.py"))' "$@"; }
            list() { "$WARD" backup list "$@" -0 >"$OUT/list"; backup names "$VOL" "$MNT" <"$OUT/list"; }
            # As on another machine.
            elsewhere() { XDG_STATE_HOME="$OUT/elsewhere/state" XDG_RUNTIME_DIR="$OUT/elsewhere/run" "$@"; }
            export RESTIC_PASSWORD=x RESTIC_CACHE_DIR="$OUT/restic-cache"
            export BORG_BASE_DIR="$OUT/borg" BORG_PASSPHRASE=x BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK=yes
            export RCLONE_CONFIG=/dev/null
            \(script)
            """, seconds: seconds, sourceLocation: sourceLocation)
    }

    /// The plaintext paths in a backup; a "+" marks the volume's own files.
    func backedUp(_ arguments: String = "\"$VOL\"") throws -> [String] {
        try backupShell("list \(arguments)").split(separator: "\n").map(String.init)
    }

    /// Starts a program of the volume's user, which runs while the test goes on.
    func start(_ arguments: [String], output: Int32? = nil, errors: Int32? = nil) throws -> Child {
        try Child(
            user.prefix + arguments, environment: environment, output: output, errors: errors)
    }

    /// Waits until `condition` holds.
    func wait(
        for what: String, seconds: Double = 60, sourceLocation: SourceLocation = #_sourceLocation,
        _ condition: () throws -> Bool
    ) throws {
        #expect(
            try comesTrue(within: seconds, condition), "\(what): not within \(seconds) s",
            sourceLocation: sourceLocation)
    }

    /// The epoch that `ward.state` names, format.md §8.
    func recordedEpoch() throws -> Int {
        let bytes = try Data(contentsOf: URL(fileURLWithPath: volume + "/ward.state"))
        return bytes[12..<16].reversed().reduce(0) { $0 << 8 | Int($1) }
    }
}
