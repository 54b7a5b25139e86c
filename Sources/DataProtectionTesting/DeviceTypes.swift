import WardFormat
import WardSimulation

/// A class of files: `complete` (A), `completeUnlessOpen` (B),
/// `completeUntilFirstUserAuthentication` (C), `none` (D) or `completeWhenUserInactive` (CX).
public typealias ProtectionClass = WardFormat.ProtectionClass

/// What a program did to its files, as far as their classes are concerned:
/// `SimulatedDevice.audit()`.
public typealias Audit = WardSimulation.Audit

/// Something that an audit found and that should not be.
public typealias Finding = WardSimulation.Finding

/// Something that a program did, or was refused, to a file because of its class: who, what, class,
/// state.
public typealias FileEvent = WardSimulation.FileEvent

/// Why a simulated device can't be made, or does not do what it was asked to: what was tried, why
/// not, and the next step.
public typealias SimulatorError = WardSimulation.SimulatorError

/// The states of a device's lock, as docs/semantics.md names them.
public enum DeviceState: String, Sendable, CaseIterable {
    /// No passcode is set: nothing is ever withheld.
    case noPasscode
    /// Booted, passcode not given yet: only class D can be read, and new files of class B made.
    case beforeFirstUnlock
    case unlocked
    /// Locked, and the grace period still runs: everything can be read.
    case locking
    /// Classes A and B can't be opened.
    case locked
}

/// When a lock takes class A away.
public enum LockTiming: Sendable {
    /// After the grace period: `advance(by:)` makes it pass.
    case afterGracePeriod
    /// Before `lock` returns.
    case now
}

/// A process that has a file or directory of the device in use.
public struct FileHolder: Sendable, Equatable {
    public var pid: Int
    public var uid: Int
    /// The command name, as `/proc/PID/comm` has it.
    public var program: String
    /// Inside the volume.
    public var path: String
    /// Nil where it is not known.
    public var protectionClass: ProtectionClass?
    /// `read`, `write`, `readWrite`, `path`, `mapped`, `mappedForWriting`, `workingDirectory` or
    /// `rootDirectory`.
    public var use: String
}

/// What a program did while it was watched: `SimulatedDevice.recording(_:)`.
public struct Recording<Value> {
    /// What the watched code returned.
    public var value: Value
    /// What it was refused.
    public var denials: [FileEvent]
    /// Files with content that it deleted or replaced while they could not be read.
    public var removedUnread: [FileEvent]
}

extension Recording: Sendable where Value: Sendable {}
