import WardControl
import WardFUSE
import WardKeys

/// The options of a mount as the daemon gets them. `MountCommand` makes them.
public struct MountOptions: Sendable {
    /// The backing directory.
    public var volumePath: String
    /// An empty directory.
    public var mountPoint: String
    /// The root of `StateDirectory`.
    public var stateRoot: String
    /// The directory of the control socket, as in `RuntimeDirectory`.
    public var runtimeDirectory: String
    /// Seconds from a lock to the loss of class A; nil for the volume's policy (10 s unless set
    /// otherwise). Refused where longer than the policy's, except for volumes of tests.
    public var graceSeconds: Double?
    /// Whether other users may use the mount.
    public var allowOther: Bool
    public var readOnly: Bool
    /// Whether a locked screen of the daemon's user locks the volume; sleep and shutdown always do.
    public var locksWithScreen: Bool
    /// Whether the end of the user's last session locks the volume.
    public var locksAtLogout: Bool
    /// The clock moves only by `Advance`. Refused for other volumes than those of tests.
    public var manualClock: Bool
    /// Another machine or program may change the backing directory during the mount.
    public var sharedStorage: Bool
    /// The log file; nil for standard error in the foreground, else the journal, else a file in the
    /// state directory.
    public var logPath: String?
    /// Whether to log to standard error where there is no `logPath`.
    public var logsToStandardError: Bool
    /// The transport of the kernel's requests.
    public var transport: TransportChoice
    /// The number of workers; nil chooses it.
    public var threads: Int?
    /// Whether a watchdog process (`/proc/self/exe watchdog`) watches the mount.
    public var usesWatchdog: Bool
    /// Accepts an older keybag than this device remembers: the volume was restored on purpose.
    public var acceptsOlderGeneration: Bool
    /// Syncs nothing. Refused for other volumes than those of tests.
    public var isVolatile: Bool
    /// The version in the answers of `Status` and `GetInfo`.
    public var version: String

    public init(
        volumePath: String, mountPoint: String, stateRoot: String = StateDirectory.defaultRoot(),
        runtimeDirectory: String = RuntimeDirectory.defaultPath(), graceSeconds: Double? = nil,
        allowOther: Bool = false, readOnly: Bool = false, locksWithScreen: Bool = false,
        locksAtLogout: Bool = true, manualClock: Bool = false,
        sharedStorage: Bool = false, logPath: String? = nil, logsToStandardError: Bool = false,
        transport: TransportChoice = .auto, threads: Int? = nil, usesWatchdog: Bool = true,
        acceptsOlderGeneration: Bool = false,
        isVolatile: Bool = false, version: String = "0"
    ) {
        self.volumePath = volumePath
        self.mountPoint = mountPoint
        self.stateRoot = stateRoot
        self.runtimeDirectory = runtimeDirectory
        self.graceSeconds = graceSeconds
        self.allowOther = allowOther
        self.readOnly = readOnly
        self.locksWithScreen = locksWithScreen
        self.locksAtLogout = locksAtLogout
        self.manualClock = manualClock
        self.sharedStorage = sharedStorage
        self.logPath = logPath
        self.logsToStandardError = logsToStandardError
        self.transport = transport
        self.threads = threads
        self.usesWatchdog = usesWatchdog
        self.acceptsOlderGeneration = acceptsOlderGeneration
        self.isVolatile = isVolatile
        self.version = version
    }
}

/// The transport of the kernel's requests, by the words of the command line.
public enum TransportChoice: String, Sendable, CaseIterable {
    /// The fastest transport of this kernel.
    case auto
    case device
    case ioUring = "io-uring"

    var transport: FUSETransport? {
        switch self {
        case .auto: nil
        case .device: .device
        case .ioUring: .ioUring
        }
    }
}

/// The description of a mount that answers.
public struct MountedInfo: Sendable {
    public var uuid: String
    /// Absolute paths.
    public var volumePath: String
    public var mountPoint: String
    public var socketPath: String
    /// `noPasscode` or `beforeFirstUnlock`.
    public var state: String
}
