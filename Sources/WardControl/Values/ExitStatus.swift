/// Exit codes of `ward`: general ones from `sysexits.h`, and 10 to 16 for its own. They are part of
/// the interface.
public enum ExitStatus: Int32, Sendable, CaseIterable {
    case success = 0
    /// Some of several paths failed; each was reported.
    case someFailed = 1
    /// The directory holds no volume.
    case notAVolume = 10
    /// The lock state forbids it.
    case locked = 11
    case wrongPasscode = 12
    /// Too many wrong passcodes: the user must wait, or the volume is disabled.
    case tryLater = 13
    /// The keybag or another structure of the volume is damaged, or the volume was erased.
    case damaged = 14
    /// An audit has findings (`ward audit`, `ward sync mark`; `ward test` where its command
    /// succeeded). Or a check had findings and repaired all of them (`ward check`).
    case findings = 15
    /// No passcode is set, so a lock changes nothing.
    case noPasscode = 16
    /// The command line was wrong (`EX_USAGE`).
    case usage = 64
    /// The input is not usable, for example an empty passcode (`EX_DATAERR`).
    case badData = 65
    /// A named file or directory is missing or can't be read (`EX_NOINPUT`).
    case noInput = 66
    /// No mounted volume, no `/dev/fuse`, or a needed program is missing (`EX_UNAVAILABLE`).
    case unavailable = 69
    /// A mistake in ward itself (`EX_SOFTWARE`).
    case software = 70
    /// The system refused memory or a process (`EX_OSERR`).
    case system = 71
    /// The output can't be made (`EX_CANTCREAT`).
    case cannotCreate = 73
    /// Reading or writing failed (`EX_IOERR`).
    case inputOutput = 74
    /// Busy now, may work later (`EX_TEMPFAIL`).
    case temporary = 75
    /// The user is not permitted to do it (`EX_NOPERM`).
    case notPermitted = 77
    /// This machine is not set up: for example, the device key is missing (`EX_CONFIG`).
    case configuration = 78
}
