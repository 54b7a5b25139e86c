extension VolumeInterface {
    /// The types of events, holders, trusted hosts and checks.
    static let otherTypes = """
        # kind: willBecomeUnavailable, locked, didBecomeAvailable, firstUnlock, reboot,
        # didBecomeUnavailable, denied, removedUnread (a file with content was deleted or replaced
        # while its class could not be read), weakened (a file is in a weaker class, as detail says,
        # than was asked for and could not be had, operation setClass, or than the file had whose
        # name it took, operation rename), syncRefused (class A, B or CX was to be set or created in
        # a synchronised directory, which detail names), syncExposed (a file of such a class was
        # moved or linked into one), integrityFailure, healed, lost, foreignFile, passcodeChanged,
        # mounted, unmounting, note, trustedHost (operation: add, connect, end, remove, expire, or
        # hold: the volume is locked, and A and B stay open) or kernelCheck (operation: failed, or
        # notChecked: the volume can't be unlocked, as detail says). sequence: counts up by one with each
        # event of a mount; 0 for a signal of one class, which is not remembered. state: the lock
        # state at the time. program: the command name of the process, as /proc/PID/comm has it.
        # count, lastTime: where the same denial came again it stays one event, and `time` is the
        # first; such an event comes again with the same sequence, and replaces the earlier.
        # seconds: how long it took: a lock from the end of the grace period, an unlock from the
        # passcode's arrival. files: whose cached pages a lock has dropped; of syncExposed, how many
        # came with a directory.
        type Event (
          sequence: int,
          time: string,
          kind: string,
          state: ?string,
          path: ?string,
          protectionClass: ?string,
          operation: ?string,
          pid: ?int,
          uid: ?int,
          program: ?string,
          count: ?int,
          lastTime: ?string,
          secondsLeft: ?float,
          seconds: ?float,
          files: ?int,
          detail: ?string
        )

        # A process that has a file or directory of the mount in use. use: read, write, readWrite, path (a descriptor
        # that can only name), mapped, mappedForWriting, workingDirectory or rootDirectory.
        type Holder (
          pid: int,
          uid: int,
          program: string,
          path: string,
          protectionClass: ?string,
          use: string
        )

        # A host that is trusted, or was until it expired. Times are RFC 3339; connected: connections that stand now.
        type TrustedHost (
          name: string,
          made: string,
          lastUsed: string,
          expires: string,
          expired: bool,
          connected: int
        )

        # Bytes of a file, the first and the last.
        type ByteRange (
          first: int,
          last: int
        )

        # What a check found. kind: keybag, root, content, header, unclean, name, record, link, attribute or leftover. bytes:
        # which of the file can't be read (the first 500 ranges; ranges says how many). outcome: found, repaired, or left
        # (not repaired: reason). quarantine: where what was taken away is, below the backing directory.
        type CheckFinding (
          kind: string,
          path: string,
          protectionClass: ?string,
          bytes: []ByteRange,
          ranges: int,
          problem: string,
          remedy: string,
          outcome: string,
          reason: ?string,
          quarantine: ?string
        )

        type CheckProgress (
          directories: int,
          files: int,
          bytes: int,
          findings: int
        )

        # Files of one class whose content was not read because it is locked.
        type UnreadFiles (
          protectionClass: string,
          files: int
        )

        # The end of a check. unreachable: what could not be looked at, and why; foreign: names in the backing directory that
        # are not ward's (of both the first 100). doubtful: an unclean end still excuses findings. reportPath: what a
        # repair has left in the volume. complete: everything was seen.
        type CheckReport (
          progress: CheckProgress,
          unread: []UnreadFiles,
          unreachable: []string,
          foreign: []string,
          interrupted: bool,
          doubtful: bool,
          complete: bool,
          reportPath: ?string
        )


        """
}
