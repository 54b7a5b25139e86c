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
    public var stateRoot = StateDirectory.defaultRoot()
    /// The directory of the control socket, as in `RuntimeDirectory`.
    public var runtimeDirectory = RuntimeDirectory.defaultPath()
    public var lock = LockOptions()
    /// Whether other users may use the mount.
    public var allowOther = false
    public var readOnly = false
    /// The clock moves only by `Advance`. Refused for other volumes than those of tests.
    public var manualClock = false
    /// Another machine or program may change the backing directory during the mount.
    public var sharedStorage = false
    /// Accepts an older keybag than this device remembers: the volume was restored on purpose.
    public var acceptsOlderGeneration = false
    public var tests = TestOptions()
    /// The transport of the kernel's requests.
    public var transport = TransportChoice.auto
    /// The rules by which workers do not serve.
    public var rulesLeftOut: RulesLeftOut?
    /// The log file; nil for standard error in the foreground, else the journal, else a file in the
    /// state directory.
    public var logPath: String?
    /// Whether to log to standard error where there is no `logPath`.
    public var logsToStandardError = false

    public init(volumePath: String, mountPoint: String) {
        self.volumePath = volumePath
        self.mountPoint = mountPoint
    }

    /// The part of the options that concerns the kernel.
    func forFUSE(_ placement: Placement) -> FUSEMountOptions {
        var options = FUSEMountOptions(
            mountPoint: placement.mountPoint, fileSystemName: placement.volumePath)
        options.allowOther = allowOther
        options.readOnly = readOnly
        options.sharedStorage = sharedStorage
        options.transport = transport.transport
        if let rulesLeftOut { options.rules.subtract(rulesLeftOut.rules) }
        return options
    }
}

/// The causes that lock a mounted volume, and how soon they do.
public struct LockOptions: Sendable {
    /// Seconds from a lock to the loss of class A; nil for the volume's policy (10 s unless set
    /// otherwise). Refused where longer than the policy's, except for volumes of tests.
    public var graceSeconds: Double?
    /// Whether a locked screen of the daemon's user locks the volume; sleep and shutdown always do.
    public var followsScreen = false
    /// Whether the volume stays as it is when the user's last session ends.
    public var ignoresLogout = false
}

/// Promises that a mount gives up. Refused for other volumes than those of tests.
public struct TestOptions: Sendable {
    /// Syncs nothing.
    public var isVolatile = false
    /// Tells the kernel of no page to drop, as if it kept them.
    public var keepsPages = false
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

/// Rules by which workers do not serve, so that a measurement shows what each brings.
public struct RulesLeftOut: Sendable, Equatable {
    let rules: ServingRules

    /// Takes a list such as "yield,poll". Nil where a word names no rule (`ServingRules.names`).
    public init?(words: String) {
        guard let rules = ServingRules(words: words) else { return nil }
        self.rules = rules
    }

    public var words: String { rules.words.joined(separator: ",") }

    /// The words of all rules.
    public static let known = ServingRules.all.words
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
