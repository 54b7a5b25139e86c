import WardFormat
import WardSimulation

/// A protection class: `complete` (A), `completeUnlessOpen` (B),
/// `completeUntilFirstUserAuthentication` (C), `none` (D) or `completeWhenUserInactive` (CX).
public typealias ProtectionClass = WardFormat.ProtectionClass

/// The report about a program's files and their classes, by `SimulatedDevice.audit()`.
public typealias Audit = WardSimulation.Audit

/// A mistake that an audit found.
public typealias Finding = WardSimulation.Finding

/// An event of a program and a file that is due to the file's class: program, file, class, state.
public typealias FileEvent = WardSimulation.FileEvent

/// The error of a simulated device: what failed, the reason, and the next step.
public typealias SimulatorError = WardSimulation.SimulatorError

/// The states of a device's lock, named as in docs/semantics.md.
public enum DeviceState: String, Sendable, CaseIterable {
    /// No passcode is set, and no class is ever withheld.
    case noPasscode
    /// Booted, without an unlock yet: only class D can be read, and new files of class B can be
    /// made.
    case beforeFirstUnlock
    /// All classes can be read.
    case unlocked
    /// Locked, and the grace period still runs: all classes can be read.
    case locking
    /// Locked: classes A and B can't be opened.
    case locked
}

/// When a lock takes class A away.
public enum LockTiming: Sendable {
    /// After the grace period, which passes by `advance(by:)`.
    case afterGracePeriod
    /// Before `lock` returns.
    case now
}

/// A process that uses a file or directory of the device.
public struct FileHolder: Sendable, Equatable {
    /// The process ID.
    public var pid: Int
    /// The user ID of the process.
    public var uid: Int
    /// The command name, as in `/proc/PID/comm`.
    public var program: String
    /// The path inside the volume.
    public var path: String
    /// The file's class; nil where it is not known.
    public var protectionClass: ProtectionClass?
    /// One of `read`, `write`, `readWrite`, `path`, `mapped`, `mappedForWriting`,
    /// `workingDirectory` and `rootDirectory`.
    public var use: String
}

/// The report about code that `SimulatedDevice.recording(_:)` ran.
public struct Recording<Value> {
    /// The value that the code returned.
    public var value: Value
    /// The calls that were refused because of a class.
    public var denials: [FileEvent]
    /// The files with content that were deleted or replaced while they could not be read.
    public var removedUnread: [FileEvent]
}

extension Recording: Sendable where Value: Sendable {}
