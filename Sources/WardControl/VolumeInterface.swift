/// The Varlink interface of a mounted volume: its text, which clients in any language read, and its names.
public enum VolumeInterface {
    public static let name = "org.ward.Volume"

    public static let methods: Set<String> = [
        "Status", "Lock", "Unlock", "Reboot", "SetPasscode", "ChangePasscode", "RemovePasscode",
        "Advance",
        "Unmount", "Monitor",
        "SetPolicy", "Erase",
    ]

    /// The name of a method or error of this interface as it crosses the socket.
    public static func qualified(_ member: String) -> String { name + "." + member }

    /// Members whose strings stay in locked memory.
    public static let secretMembers: Set<String> = ["passcode", "current"]

    /// What `org.varlink.service.GetInterfaceDescription` answers.
    public static let description = """
        # The lock state of one mounted ward volume. Class and state names are those of docs/semantics.md.
        interface org.ward.Volume

        # One protection class: its letter (A, B, C, D, CX), whether its files can be opened now, and how many are open.
        type ClassStatus (
          letter: string,
          name: string,
          available: bool,
          openFiles: int
        )

        # state: noPasscode, beforeFirstUnlock, unlocked, locking or locked; since: when it began, RFC 3339.
        type VolumeStatus (
          uuid: string,
          volume: string,
          mountpoint: string,
          state: string,
          since: string,
          passcodeSet: bool,
          graceSeconds: float,
          graceRemainingSeconds: ?float,
          classes: []ClassStatus,
          pid: int,
          version: string,
          readOnly: bool,
          manualClock: bool
        )

        # kind: willBecomeUnavailable, locked, didBecomeAvailable, firstUnlock, reboot, denied, integrityFailure, healed,
        # lost, foreignFile, passcodeChanged, mounted, unmounting or note.
        type Event (
          time: string,
          kind: string,
          state: ?string,
          path: ?string,
          protectionClass: ?string,
          operation: ?string,
          pid: ?int,
          uid: ?int,
          secondsLeft: ?float,
          detail: ?string
        )

        method Status() -> (status: VolumeStatus)

        # Locks: at once with now, else after the grace period. With now it returns when nothing of class A is readable.
        method Lock(now: ?bool) -> (state: string)

        method Unlock(passcode: string) -> (state: string)

        # Back to before first unlock, as a boot would, without unmounting.
        method Reboot() -> (state: string)

        method SetPasscode(passcode: string) -> ()

        method ChangePasscode(current: string, passcode: string) -> ()

        method RemovePasscode(current: string) -> ()

        # Moves the clock of a volume mounted with --manual-clock; returns when everything that fell due is done.
        method Advance(seconds: float) -> (state: string)

        # Ends the mount; with force also while programs use it.
        method Unmount(force: ?bool) -> ()

        # Needs "more": the last events, then each as it happens.
        method Monitor(last: ?int) -> (event: Event)

        # What is left out stays as it is. Needs the current passcode where one is set.
        method SetPolicy(
          current: ?string, graceSeconds: ?float, userInactiveSeconds: ?float, eraseAfterTries: ?bool
        ) -> ()

        # Destroys the effaceable key, so that nothing on this device opens the volume again, and ends the mount. Only
        # where uuid is the volume's.
        method Erase(uuid: string) -> ()

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

        """
}
