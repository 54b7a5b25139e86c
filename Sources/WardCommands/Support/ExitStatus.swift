/// Exit codes of `ward`: `sysexits.h` for the general, 10 to 15 for what only ward has. They are
/// part of the interface.
public enum ExitStatus: Int32, Sendable, CaseIterable {
    case success = 0
    /// Some of several paths failed; each was reported.
    case someFailed = 1
    /// The directory holds no volume.
    case notAVolume = 10
    /// Refused because of the lock state.
    case locked = 11
    case wrongPasscode = 12
    /// Too many wrong passcodes: wait, or the volume is disabled.
    case tryLater = 13
    /// The keybag or another structure of the volume is damaged, or the volume was erased.
    case damaged = 14
    /// An audit found something (`ward audit`, `ward sync mark`; `ward test` where the command that
    /// it ran succeeded), or a check did, and repaired all of it (`ward check`).
    case findings = 15
    /// There is no passcode, so that a lock locks nothing.
    case noPasscode = 16
    /// The command line was wrong (`EX_USAGE`).
    case usage = 64
    /// What was read is not usable: an empty passcode, for example (`EX_DATAERR`).
    case badData = 65
    /// A file or directory that was named is not there or can't be read (`EX_NOINPUT`).
    case noInput = 66
    /// No mounted volume, no `/dev/fuse`, no program that is needed (`EX_UNAVAILABLE`).
    case unavailable = 69
    /// A mistake of ward's own (`EX_SOFTWARE`).
    case software = 70
    /// The system said no: no memory, no process (`EX_OSERR`).
    case system = 71
    /// What was to be made can't be made (`EX_CANTCREAT`).
    case cannotCreate = 73
    /// Reading or writing failed (`EX_IOERR`).
    case inputOutput = 74
    /// Busy now, may work later (`EX_TEMPFAIL`).
    case temporary = 75
    /// Not permitted (`EX_NOPERM`).
    case notPermitted = 77
    /// Something on this machine is not set up: the device key is not there (`EX_CONFIG`).
    case configuration = 78
}
