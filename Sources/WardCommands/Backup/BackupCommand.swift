import ArgumentParser

struct BackupCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "backup", abstract: "Back up a volume's ciphertext, in any state.",
        discussion: """
            A backup is a copy of the volume's directory, made by any program, while the volume is \
            locked, before its first unlock, or not mounted. Everything belongs into it but what is \
            in Library/Caches and tmp of a container, and what is marked with ward backup exclude.

            A copy opens on another machine with a recovery kit: make one with ward recovery create.

            Examples:
              ward backup run ~/papers -- sh -c \\
                'restic -r /media/usb/repo backup --exclude-file "$WARD_BACKUP_EXCLUDES" "$WARD_BACKUP_SOURCE"'
              ward backup list ~/papers --for rsync >list
              ward backup exclude ~/papers/downloads
            """,
        subcommands: [
            BackupRunCommand.self, BackupListCommand.self, BackupExcludeCommand.self,
            BackupIncludeCommand.self,
        ])
}
