/// One protection class in `VolumeStatus`.
public struct ClassStatus: Equatable, Sendable {
    /// A, B, C, D or CX.
    public var letter: String
    public var name: String
    /// Whether files of this class can be opened now.
    public var available: Bool
    public var openFiles: Int

    public init(letter: String, name: String, available: Bool, openFiles: Int) {
        self.letter = letter
        self.name = name
        self.available = available
        self.openFiles = openFiles
    }

    public var json: JSONValue {
        .object([
            ("letter", .string(letter)), ("name", .string(name)), ("available", .bool(available)),
            ("openFiles", .int(Int64(openFiles))),
        ])
    }

    /// Nil where a member is missing or of another type.
    public init?(json: JSONValue) {
        guard let letter = json["letter"]?.stringValue, let name = json["name"]?.stringValue,
            let available = json["available"]?.boolValue,
            let openFiles = json["openFiles"]?.intValue
        else { return nil }
        self.init(letter: letter, name: name, available: available, openFiles: openFiles)
    }
}

/// The number of requests of one kind that the kernel sent since the mount.
public struct RequestCount: Equatable, Sendable {
    /// The name in linux/fuse.h: LOOKUP, READ.
    public var name: String
    public var count: Int

    public init(name: String, count: Int) {
        self.name = name
        self.count = count
    }

    public var json: JSONValue {
        .object([("name", .string(name)), ("count", .int(Int64(count)))])
    }

    /// Nil where a member is missing or of another type.
    public init?(json: JSONValue) {
        guard let name = json["name"]?.stringValue, let count = json["count"]?.intValue else {
            return nil
        }
        self.init(name: name, count: count)
    }
}

/// The answer of `Status`. The members of its groups are members of the status too, as in JSON.
@dynamicMemberLookup
public struct VolumeStatus: Equatable, Sendable {
    /// The mount and its daemon.
    public struct Mount: Equatable, Sendable {
        public var uuid: String
        /// The backing directory, absolute.
        public var volume: String
        public var mountpoint: String
        /// The transport of the kernel's requests: `device` or `io-uring`; nil where the daemon
        /// does not say.
        public var transport: String?
        /// The process number of the daemon.
        public var pid: Int
        public var version: String
        public var readOnly: Bool
        /// Whether the clock moves only by `Advance`.
        public var manualClock: Bool
        /// Whether the kernel drops the pages that a lock tells it to drop: `checking`, `checked`,
        /// `failed` or `notChecked`. Nil where the daemon does not say.
        public var kernelCheck: String?
        /// The reason of `failed` and `notChecked`.
        public var kernelCheckWhy: String?
        /// The volume's format, 1 or 2; nil where the daemon does not say.
        public var format: Int?
        /// Whether structures of the format before it may be left (`ward upgrade`).
        public var isUpgrading = false
    }

    /// The state of the lock.
    public struct Lock: Equatable, Sendable {
        /// `noPasscode`, `beforeFirstUnlock`, `unlocked`, `locking`, `locked` or `lockedWithHost`.
        public var state: String
        /// When the state began, RFC 3339, UTC.
        public var since: String
        public var passcodeSet: Bool
        /// Row L8: false exactly while files of class A and B can't be opened.
        public var protectedDataAvailable = false
        public var firstUnlockHappened = false
        /// The grace period of locks now.
        public var graceSeconds: Double
        /// Whether the policy was changed without the passcode, so that the stronger values hold.
        public var policyForged = false
        /// In state `locking`: seconds until class A is closed.
        public var graceRemainingSeconds: Double?
        /// Seconds until class CX is closed, unless an unlock comes first; nil where it is closed
        /// or never will be.
        public var userInactiveRemainingSeconds: Double?
    }

    /// Wrong passcodes.
    public struct Tries: Equatable, Sendable {
        /// The number of wrong passcodes before the volume is disabled or erased; nil without a
        /// passcode.
        public var triesLeft: Int?
        /// Seconds until the next passcode may be tried; nil where it may be tried now.
        public var retrySeconds: Double?
        /// Whether the last wrong passcode erases the volume instead of disabling it.
        public var eraseAfterTries = false
    }

    /// Recovery kits.
    public struct Recovery: Equatable, Sendable {
        /// The state of the kits: `none` (no kit is known), `unverified` (no kit was made or opened
        /// for a year) or `current`. Nil where the daemon does not say.
        public var recoveryKit: String?
        /// When the last kit was made, and when a kit was last opened as a test: RFC 3339, UTC.
        public var recoveryKitMade: String?
        public var recoveryKitVerified: String?
    }

    /// Stored and lost content.
    public struct Content: Equatable, Sendable {
        /// Bytes written to the backing files and not yet durable; nil where that is not known.
        public var unsyncedBytes: Int?
        /// Bytes accepted from programs and not yet in the backing files; nil where that is not
        /// known.
        public var pendingStoreBytes: Int?
        /// The number of `lost` events since the mount, and the paths of the last few.
        public var lost = 0
        public var lostPaths: [String] = []
        public var integrityFailures = 0
    }

    public var mount: Mount
    public var lock: Lock
    public var tries = Tries()
    public var recovery = Recovery()
    public var content = Content()
    /// In the order A, B, C, D, CX.
    public var classes: [ClassStatus]
    /// The number of refusals since the mount.
    public var denied = 0
    /// The number of the last event.
    public var sequence = 0
    /// The names of connected trusted hosts, once for each connection.
    public var hosts: [String] = []
    /// The kernel's requests since the mount.
    public var requests: [RequestCount] = []
    /// The events that lock the volume by themselves, as far as they were wanted; nil where the
    /// daemon does not say.
    public var locksAt: [LockTrigger]?
    /// Seconds until an announced erase, which can be cancelled; nil where none is announced.
    public var eraseInSeconds: Double?

    public init(
        uuid: String, volume: String, mountpoint: String, state: String, since: String,
        passcodeSet: Bool, graceSeconds: Double, graceRemainingSeconds: Double?,
        classes: [ClassStatus], pid: Int, version: String, readOnly: Bool, manualClock: Bool
    ) {
        mount = Mount(
            uuid: uuid, volume: volume, mountpoint: mountpoint, pid: pid, version: version,
            readOnly: readOnly, manualClock: manualClock)
        lock = Lock(
            state: state, since: since, passcodeSet: passcodeSet, graceSeconds: graceSeconds,
            graceRemainingSeconds: graceRemainingSeconds)
        self.classes = classes
    }

    public subscript<Value>(dynamicMember path: WritableKeyPath<Mount, Value>) -> Value {
        get { mount[keyPath: path] }
        set { mount[keyPath: path] = newValue }
    }

    public subscript<Value>(dynamicMember path: WritableKeyPath<Lock, Value>) -> Value {
        get { lock[keyPath: path] }
        set { lock[keyPath: path] = newValue }
    }

    public subscript<Value>(dynamicMember path: WritableKeyPath<Tries, Value>) -> Value {
        get { tries[keyPath: path] }
        set { tries[keyPath: path] = newValue }
    }

    public subscript<Value>(dynamicMember path: WritableKeyPath<Recovery, Value>) -> Value {
        get { recovery[keyPath: path] }
        set { recovery[keyPath: path] = newValue }
    }

    public subscript<Value>(dynamicMember path: WritableKeyPath<Content, Value>) -> Value {
        get { content[keyPath: path] }
        set { content[keyPath: path] = newValue }
    }

    public var json: JSONValue {
        .object(present: [
            ("uuid", .string(mount.uuid)), ("volume", .string(mount.volume)),
            ("mountpoint", .string(mount.mountpoint)), ("state", .string(lock.state)),
            ("since", .string(lock.since)), ("passcodeSet", .bool(lock.passcodeSet)),
            ("protectedDataAvailable", .bool(lock.protectedDataAvailable)),
            ("firstUnlockHappened", .bool(lock.firstUnlockHappened)),
            ("graceSeconds", .double(lock.graceSeconds)),
            ("graceRemainingSeconds", lock.graceRemainingSeconds.map { .double($0) }),
            ("policyForged", .bool(lock.policyForged)),
            ("userInactiveRemainingSeconds", lock.userInactiveRemainingSeconds.map { .double($0) }),
            ("triesLeft", tries.triesLeft.map { .int(Int64($0)) }),
            ("retrySeconds", tries.retrySeconds.map { .double($0) }),
            ("eraseAfterTries", .bool(tries.eraseAfterTries)),
            ("recoveryKit", recovery.recoveryKit.map { .string($0) }),
            ("recoveryKitMade", recovery.recoveryKitMade.map { .string($0) }),
            ("recoveryKitVerified", recovery.recoveryKitVerified.map { .string($0) }),
            ("classes", .array(classes.map(\.json))),
            ("unsyncedBytes", content.unsyncedBytes.map { .int(Int64($0)) }),
            ("pendingStoreBytes", content.pendingStoreBytes.map { .int(Int64($0)) }),
            ("lost", .int(Int64(content.lost))),
            ("lostPaths", .array(content.lostPaths.map { .string($0) })),
            ("integrityFailures", .int(Int64(content.integrityFailures))),
            ("denied", .int(Int64(denied))),
            ("hosts", .array(hosts.map { .string($0) })),
            ("requests", .array(requests.map(\.json))),
            ("transport", mount.transport.map { .string($0) }),
            ("sequence", .int(Int64(sequence))), ("pid", .int(Int64(mount.pid))),
            ("version", .string(mount.version)), ("readOnly", .bool(mount.readOnly)),
            ("manualClock", .bool(mount.manualClock)),
            ("locksAt", locksAt.map { .array($0.map(\.json)) }),
            ("eraseInSeconds", eraseInSeconds.map { .double($0) }),
            ("kernelCheck", mount.kernelCheck.map { .string($0) }),
            ("kernelCheckWhy", mount.kernelCheckWhy.map { .string($0) }),
            ("format", mount.format.map { .int(Int64($0)) }),
            ("upgrading", mount.format.map { _ in .bool(mount.isUpgrading) }),
        ])
    }

    /// Nil where a member that every version has is missing or of another type. Members of later
    /// versions may be absent.
    public init?(json: JSONValue) {
        guard let uuid = json["uuid"]?.stringValue, let volume = json["volume"]?.stringValue,
            let mountpoint = json["mountpoint"]?.stringValue,
            let state = json["state"]?.stringValue, let since = json["since"]?.stringValue,
            let passcodeSet = json["passcodeSet"]?.boolValue,
            let graceSeconds = json["graceSeconds"]?.doubleValue,
            let classes = json["classes"]?.arrayValue, let pid = json["pid"]?.intValue,
            let version = json["version"]?.stringValue,
            let readOnly = json["readOnly"]?.boolValue,
            let manualClock = json["manualClock"]?.boolValue
        else { return nil }
        self.init(
            uuid: uuid, volume: volume, mountpoint: mountpoint, state: state, since: since,
            passcodeSet: passcodeSet, graceSeconds: graceSeconds,
            graceRemainingSeconds: json["graceRemainingSeconds"]?.doubleValue,
            classes: classes.compactMap(ClassStatus.init(json:)), pid: pid, version: version,
            readOnly: readOnly, manualClock: manualClock)
        lock.protectedDataAvailable = json["protectedDataAvailable"]?.boolValue ?? false
        lock.firstUnlockHappened = json["firstUnlockHappened"]?.boolValue ?? false
        lock.policyForged = json["policyForged"]?.boolValue ?? false
        lock.userInactiveRemainingSeconds = json["userInactiveRemainingSeconds"]?.doubleValue
        tries.triesLeft = json["triesLeft"]?.intValue
        tries.retrySeconds = json["retrySeconds"]?.doubleValue
        tries.eraseAfterTries = json["eraseAfterTries"]?.boolValue ?? false
        recovery.recoveryKit = json["recoveryKit"]?.stringValue
        recovery.recoveryKitMade = json["recoveryKitMade"]?.stringValue
        recovery.recoveryKitVerified = json["recoveryKitVerified"]?.stringValue
        content.unsyncedBytes = json["unsyncedBytes"]?.intValue
        content.pendingStoreBytes = json["pendingStoreBytes"]?.intValue
        content.lost = json["lost"]?.intValue ?? 0
        content.lostPaths = json["lostPaths"]?.arrayValue?.compactMap(\.stringValue) ?? []
        content.integrityFailures = json["integrityFailures"]?.intValue ?? 0
        denied = json["denied"]?.intValue ?? 0
        sequence = json["sequence"]?.intValue ?? 0
        hosts = json["hosts"]?.arrayValue?.compactMap(\.stringValue) ?? []
        requests = json["requests"]?.arrayValue?.compactMap(RequestCount.init(json:)) ?? []
        mount.transport = json["transport"]?.stringValue
        locksAt = json["locksAt"]?.arrayValue?.compactMap(LockTrigger.init(json:))
        eraseInSeconds = json["eraseInSeconds"]?.doubleValue
        mount.kernelCheck = json["kernelCheck"]?.stringValue
        mount.kernelCheckWhy = json["kernelCheckWhy"]?.stringValue
        mount.format = json["format"]?.intValue
        mount.isUpgrading = json["upgrading"]?.boolValue ?? false
    }
}
