/// The Varlink interface of a mounted volume: its names, and its text for clients in any language.
public enum VolumeInterface {
    public static let name = "org.ward.Volume"

    /// The name of a method or error of this interface as it crosses the socket.
    public static func qualified(_ member: String) -> String { name + "." + member }

    /// The members whose strings stay in locked memory.
    public static let secretMembers: Set<String> = ["passcode", "current", "secret"]

    /// The answer to `org.varlink.service.GetInterfaceDescription`.
    public static let description = """
        # The lock state of one mounted ward volume. Class and state names are those of docs/semantics.md.
        #
        # In the sandbox of a container (ward container run --sandbox) there are Status and Monitor
        # alone, which tell the lock state and nothing else: uuid and volume are empty, counts are 0,
        # last must be 0. Other methods are MethodNotImplemented.
        interface org.ward.Volume

        # One protection class: its letter (A, B, C, D, CX), whether its files can be opened now, and how many are open.
        type ClassStatus (
          letter: string,
          name: string,
          available: bool,
          openFiles: int
        )

        # How often the kernel has sent one kind of request, by the names of linux/fuse.h (LOOKUP, READ).
        type RequestCount (
          name: string,
          count: int
        )

        # Something that locks the volume by itself: sleep, shutdown, screen or logout. armed: whether it does; why: the
        # reason where it does not, and what is missing where it does (the machine does not wait for the lock).
        type LockTrigger (
          kind: string,
          armed: bool,
          why: ?string
        )

        # state: noPasscode, beforeFirstUnlock, unlocked, locking, locked or lockedWithHost (locked, and trusted hosts hold
        # classes A and B open); since: when it began, RFC 3339.
        # protectedDataAvailable: false exactly while files of class A and B can't be opened.
        # firstUnlockHappened: files of class C can be opened.
        # userInactiveRemainingSeconds: until class CX goes, unless an unlock renews it.
        # triesLeft: wrong passcodes before the volume is disabled, or erased (eraseAfterTries); absent without a passcode.
        # retrySeconds: until the next passcode may be tried; absent where it may be now.
        # recoveryKit: none (none is known), unverified (none was made or opened for a year) or current; RFC 3339 times of the
        # last that was made, and of the last that was opened to see whether it can be.
        # unsyncedBytes: written and not yet durable; pendingStoreBytes: accepted and not yet stored. Absent: not known.
        # lost, denied, integrityFailures: how many since the mount; lostPaths: of the last few that were lost.
        # hosts: names of trusted hosts that are connected, once for each connection. requests: of the kernel, since the
        # mount. sequence: that of the last event.
        # locksAt: what locks the volume by itself, as far as that was wanted. manualClock: nothing
        # closes but by Advance; only volumes for tests have one. eraseInSeconds: until the volume
        # is erased, unless CancelErase or an unlock comes first.
        type VolumeStatus (
          uuid: string,
          volume: string,
          mountpoint: string,
          state: string,
          since: string,
          passcodeSet: bool,
          protectedDataAvailable: bool,
          firstUnlockHappened: bool,
          graceSeconds: float,
          graceRemainingSeconds: ?float,
          userInactiveRemainingSeconds: ?float,
          triesLeft: ?int,
          retrySeconds: ?float,
          eraseAfterTries: bool,
          recoveryKit: ?string,
          recoveryKitMade: ?string,
          recoveryKitVerified: ?string,
          classes: []ClassStatus,
          unsyncedBytes: ?int,
          pendingStoreBytes: ?int,
          lost: int,
          lostPaths: []string,
          integrityFailures: int,
          denied: int,
          hosts: []string,
          requests: []RequestCount,
          transport: ?string,
          sequence: int,
          pid: int,
          version: string,
          readOnly: bool,
          manualClock: bool,
          locksAt: ?[]LockTrigger,
          eraseInSeconds: ?float
        )

        # kind: willBecomeUnavailable, locked, didBecomeAvailable, firstUnlock, reboot,
        # didBecomeUnavailable, denied, removedUnread (a file with content was deleted or replaced
        # while its class could not be read), weakened (a file is in a weaker class, as detail says,
        # than was asked for and could not be had, operation setClass, or than the file had whose
        # name it took, operation rename), syncRefused (class A, B or CX was to be set or created in
        # a synchronised directory, which detail names), syncExposed (a file of such a class was
        # moved or linked into one), integrityFailure, healed, lost, foreignFile, passcodeChanged,
        # mounted, unmounting, note or trustedHost (operation: add, connect, end, remove, expire, or
        # hold: the volume is locked, and A and B stay open). sequence: counts up by one with each
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

        method Status() -> (status: VolumeStatus)

        # Locks: at once with now, else after the grace period. With now it returns when nothing of class A is readable.
        # reason: why, for those who look at the events. While trusted hosts are connected the state is lockedWithHost, and A
        # and B stay open until the last of them ends; with endHosts their connections are ended first, and for
        # half a minute, or until an unlock, none is taken.
        method Lock(now: ?bool, reason: ?string, endHosts: ?bool) -> (state: string)

        method Unlock(passcode: string) -> (state: string)

        # Back to before first unlock, as a boot would, without unmounting.
        method Reboot() -> (state: string)

        method SetPasscode(passcode: string) -> ()

        # hostsRemoved: names of hosts that are not trusted any more.
        method ChangePasscode(current: string, passcode: string) -> (hostsRemoved: []string)

        method RemovePasscode(current: string) -> (hostsRemoved: []string)

        # Moves the clock of a volume mounted with --manual-clock; returns when everything that fell due is done.
        method Advance(seconds: float) -> (state: string)

        # Has a volume mounted with --manual-clock run out of space, or get space again: what needs room in the store fails
        # with ENOSPC.
        method SetFull(full: bool) -> ()

        # Ends the mount; with force also while programs use it.
        method Unmount(force: ?bool) -> ()

        # Needs "more": the last events, then each as it happens, until the mount ends. With follow false it answers
        # what there is, and an answer without an event is the last.
        #
        # With signals true there is an event for each class besides those of the volume, not remembered: protectionClass
        # says which, kind is willBecomeUnavailable, didBecomeUnavailable or didBecomeAvailable, at a lock and unlock, a
        # reboot and when CX expires. protectionClass leaves only what concerns that class: its signals, its denials, and
        # firstUnlock, reboot and unmounting.
        #
        # With status true the first answer, before any event, is the status. No change is missed between the two: what
        # the status shows already may be told again, and after the last event status and events agree.
        method Monitor(
          last: ?int, follow: ?bool, signals: ?bool, protectionClass: ?string, status: ?bool
        ) -> (event: ?Event, status: ?VolumeStatus)

        # Who has files open, of all classes or one. It vetoes nothing. unreadable: processes that the daemon may not look
        # at; unattributed: open files with no process found for them (a descriptor on its way through a socket, or one of
        # those processes); complete: false where not everything could be looked at in time; leftOut: more than an answer
        # takes.
        method Holders(protectionClass: ?string) -> (
          holders: []Holder, unreadable: int, unattributed: int, complete: bool, leftOut: int
        )

        # What is left out stays as it is. Needs the current passcode where one is set.
        method SetPolicy(
          current: ?string, graceSeconds: ?float, userInactiveSeconds: ?float, eraseAfterTries: ?bool
        ) -> ()

        # Reads again what this device knows of recovery kits: ward recovery create and verify call it.
        method ReadRecovery() -> ()

        # Destroys the effaceable key, so that nothing on this device opens the volume again, and ends the mount. Only
        # where uuid is the volume's. At once with the passcode; a wrong one counts as a try.
        # Without it the volume is locked at once, erased after eraseInSeconds, and until then
        # CancelErase or an unlock takes it back.
        method Erase(uuid: string, passcode: ?string) -> (eraseInSeconds: ?float)

        # Takes an erase back that was announced. cancelled: whether there was one.
        method CancelErase() -> (cancelled: bool)

        # Trusts a host, while unlocked. host: its ID, 32 hexadecimal digits; secret: what it will present, 64 of them.
        method TrustAdd(name: string, host: string, passcode: string, secret: string) -> ()

        # Needs "more". Opens classes A and B for as long as this connection stands, however the volume is locked; not before
        # the first unlock. The first answer has name and state; the last, where the daemon ends it, why.
        method TrustConnect(host: string, secret: string) -> (
          name: ?string, state: ?string, ended: ?string
        )

        method TrustList() -> (hosts: []TrustedHost)

        # What the host has is worthless from now on, and its connections end.
        method TrustRemove(name: string) -> ()

        # Needs "more": answers once when everything written so far is durable; from then on, and as long as the connection
        # lasts, changes of the keybag (passcode, policy) wait, though no longer than 30 s each, and the epoch of the state
        # record stays, though no longer than an hour. Nothing else is held, and no lock is ever delayed.
        method Backup() -> ()

        # Needs "more": looks at everything in the volume, with repair puts right what it finds. Answers with progress and
        # findings as they come, and with the report at its end; it ends with the connection, too. One at a time.
        method Check(repair: ?bool) -> (
          progress: ?CheckProgress, finding: ?CheckFinding, report: ?CheckReport
        )

        error WrongPasscode (triesLeft: ?int)
        error TryLater (seconds: int)
        error Disabled ()
        error NoPasscodeSet ()
        error PasscodeAlreadySet ()
        error PasscodeNeeded ()
        error Erased ()
        error ClockNotManual ()
        error Busy (reason: string)
        error InvalidPasscode (reason: string)
        error Failed (what: string, why: string)
        error Locked ()
        error BeforeFirstUnlock ()
        error HostUnknown ()
        error HostExpired ()
        error HostExists ()
        error TooManyHosts ()

        """
}
