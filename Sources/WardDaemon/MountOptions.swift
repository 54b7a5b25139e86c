import WardControl
import WardFUSE
import WardKeys

/// How to mount a volume.
public struct MountOptions: Sendable {
    /// The backing directory.
    public var volumePath: String
    /// An empty directory.
    public var mountPoint: String
    /// As in `StateDirectory`.
    public var stateRoot: String
    /// Where the control socket goes, as in `RuntimeDirectory`.
    public var runtimeDirectory: String
    /// From lock to the loss of class A; nil: as the volume's policy says (10 s unless set
    /// otherwise). A longer one than the policy's is refused, but for volumes of tests.
    public var graceSeconds: Double?
    /// Whether other users may use the mount.
    public var allowOther: Bool
    public var readOnly: Bool
    /// Whether a locked screen of the daemon's user locks the volume; sleep and shutdown always do.
    public var locksWithScreen: Bool
    /// Whether the end of its user's last session locks the volume.
    public var locksAtLogout: Bool
    /// The clock moves by `Advance` alone; for volumes of tests, and refused for others.
    public var manualClock: Bool
    /// Somebody else may change the backing directory meanwhile.
    public var sharedStorage: Bool
    /// A log file; nil: standard error in the foreground, else the journal, else a file in the
    /// state directory.
    public var logPath: String?
    /// Log to standard error where there is no `logPath`.
    public var logsToStandardError: Bool
    /// What the kernel's requests come by.
    public var transport: TransportChoice
    /// Threads that serve requests; nil: as many as are worth while.
    public var threads: Int?
    /// Whether a watchdog process (`/proc/self/exe watchdog`) looks after the mount.
    public var usesWatchdog: Bool
    /// An older keybag than this device remembers is taken: the volume was restored on purpose.
    public var acceptsOlderGeneration: Bool
    /// Nothing is synced; for volumes of tests, and refused for others.
    public var isVolatile: Bool
    /// What `Status` and `GetInfo` tell.
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

/// What the kernel's requests come by: by the words that people write.
public enum TransportChoice: String, Sendable, CaseIterable {
    /// The fastest that the kernel offers.
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

/// What there is to say about a mount that answers.
public struct MountedInfo: Sendable {
    public var uuid: String
    /// Absolute paths.
    public var volumePath: String
    public var mountPoint: String
    public var socketPath: String
    /// `noPasscode` or `beforeFirstUnlock`.
    public var state: String
}
