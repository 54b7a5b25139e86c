internal import WardControl
internal import WardSystem

/// The lock state of a ward volume, as iOS tells it by `UIApplication.isProtectedDataAvailable` and
/// two notifications.
///
/// Each question is one call on the volume's control socket, so a volume that is not asked costs
/// nothing. The daemon answers root and the user who mounted the volume. For programs of other
/// users, off a ward volume and without a daemon, `snapshot` is nil and no class is available.
///
/// `events`, `performWhenAvailable` and `postNotifications` report changes.
public struct ProtectedData: Sendable {
    /// The states of semantics.md, named as there.
    public enum State: String, Hashable, Sendable {
        /// No passcode is set, and no class is ever withheld.
        case noPasscode
        case beforeFirstUnlock, unlocked
        /// The volume was locked; files can be opened until the grace period is over.
        case locking
        case locked
        /// Only in an error: the daemon does not answer this program.
        case unknown
    }

    /// An item on the volume.
    public let url: URL

    /// The state of the volume that holds `url`.
    public init(at url: URL) { self.url = url }

    /// The volume of the program's container. Without a container it is the volume of
    /// `$WARD_TEST_VOLUME`. Where that is not set either, it is the volume of the home directory
    /// (`$CFFIXED_USER_HOME`, else the user database's).
    public static var shared: ProtectedData {
        let environment = ProcessInfo.processInfo.environment
        return ProtectedData(
            at: URL(
                fileURLWithPath: ContainerDirectories.root ?? environment["WARD_TEST_VOLUME"]
                    ?? Foundation::NSHomeDirectory()))
    }

    /// The present state; nil where no daemon answers this program within ten seconds.
    public var snapshot: Snapshot? { Snapshot(ofVolumeAt: url.path) }

    /// Whether files of classes A and B can be opened (row L8 of semantics.md).
    public var isAvailable: Bool { snapshot?.isAvailable ?? false }

    /// Whether files of a class can be opened now.
    public func isAvailable(for protection: FileProtectionType) -> Bool {
        snapshot?.isAvailable(for: protection) ?? false
    }

    /// Whether files of class C can be opened now.
    public var hasBeenUnlockedSinceBoot: Bool { snapshot?.hasBeenUnlockedSinceBoot ?? false }

    /// Whether the volume has a passcode; false where `snapshot` is nil.
    public var isPasscodeSet: Bool { snapshot?.isPasscodeSet ?? false }

    /// The state of the volume at one moment.
    public struct Snapshot: Hashable, Sendable {
        /// The lock state.
        public internal(set) var state: State
        /// Whether the volume has a passcode.
        public internal(set) var isPasscodeSet: Bool
        /// The classes whose files can be opened.
        public internal(set) var availableClasses: Set<FileProtectionType>

        /// Whether files of classes A and B can be opened.
        public var isAvailable: Bool {
            availableClasses.isSuperset(of: [.complete, .completeUnlessOpen])
        }

        /// Whether files of class C can be opened.
        public var hasBeenUnlockedSinceBoot: Bool {
            availableClasses.contains(.completeUntilFirstUserAuthentication)
        }

        /// Whether files of a class can be opened.
        public func isAvailable(for protection: FileProtectionType) -> Bool {
            availableClasses.contains(protection)
        }
    }
}

extension ProtectedData.Snapshot {
    /// Nil for a state that this version does not know.
    init?(_ status: VolumeStatus) {
        guard let state = ProtectedData.State(rawValue: status.state) else { return nil }
        self.state = state
        isPasscodeSet = status.passcodeSet
        availableClasses = Set(
            status.classes.filter(\.available).compactMap {
                FileProtectionType(letter: $0.letter)
            })
        withholdClasses()
    }

    /// Enters a state. Its event comes before the signals of single classes, and the state decides
    /// the classes at once.
    mutating func enter(_ new: ProtectedData.State) {
        state = new
        switch new {
        case .noPasscode, .unlocked, .locking: availableClasses = Set(FileProtectionType.known)
        case .locked, .beforeFirstUnlock, .unknown: withholdClasses()
        }
    }

    /// Removes the classes that the state withholds. At the beginning of a lock or a reboot their
    /// keys may still be in memory.
    private mutating func withholdClasses() {
        switch state {
        case .locked: availableClasses.subtract([.complete, .completeUnlessOpen])
        case .beforeFirstUnlock: availableClasses = [FileProtectionType.none]
        case .noPasscode, .unlocked, .locking, .unknown: break
        }
    }

    /// Nil where no daemon serves the volume, or the daemon does not answer this user within ten
    /// seconds.
    init?(ofVolumeAt path: String) {
        guard let client = try? ControlClient(volumeAt: path, timeout: .seconds(10)),
            let status = try? client.status()
        else { return nil }
        self.init(status)
    }
}

extension FileProtectionType {
    /// The class of a letter: A, B, C, D or CX.
    init?(letter: String) {
        guard let index = ["A", "B", "C", "D", "CX"].firstIndex(of: letter) else { return nil }
        self = FileProtectionType.known[index]
    }
}
