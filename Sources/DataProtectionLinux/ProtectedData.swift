internal import WardControl
internal import WardSystem

/// The lock state of a ward volume, as `UIApplication.isProtectedDataAvailable` and its
/// notifications tell it on iOS.
///
/// Each question is one call of the volume's control socket, which answers the user who mounted the
/// volume and root; while nobody asks it costs nothing. Off a ward volume, while no daemon serves
/// it, and for other users' programs `snapshot` is nil and nothing is available.
///
/// To be told of changes: `events`, `performWhenAvailable`, `postNotifications`.
public struct ProtectedData: Sendable {
    /// The states of semantics.md.
    public enum State: String, Hashable, Sendable {
        /// Nothing is ever withheld.
        case noPasscode
        case beforeFirstUnlock, unlocked
        /// Locked; files can be opened until the grace period is over.
        case locking
        case locked
        /// In an error only: the daemon does not tell this program.
        case unknown
    }

    /// An item on the volume.
    public let url: URL

    /// The volume that holds `url`.
    public init(at url: URL) { self.url = url }

    /// The volume of the container that the program runs in; else that of `$WARD_TEST_VOLUME`,
    /// where it is set; else that of the home directory (`$CFFIXED_USER_HOME`, else the user
    /// database's).
    public static var shared: ProtectedData {
        let environment = ProcessInfo.processInfo.environment
        return ProtectedData(
            at: URL(
                fileURLWithPath: ContainerDirectories.root ?? environment["WARD_TEST_VOLUME"]
                    ?? Foundation::NSHomeDirectory()))
    }

    /// What holds now.
    public var snapshot: Snapshot? { Snapshot(ofVolumeAt: url.path) }

    /// False exactly while files of class A and B can't be opened (row L8 of semantics.md).
    public var isAvailable: Bool { snapshot?.isAvailable ?? false }

    /// Whether files of a class can be opened now.
    public func isAvailable(for protection: FileProtectionType) -> Bool {
        snapshot?.isAvailable(for: protection) ?? false
    }

    /// Whether files of class C can be opened.
    public var hasBeenUnlockedSinceBoot: Bool { snapshot?.hasBeenUnlockedSinceBoot ?? false }

    public var isPasscodeSet: Bool { snapshot?.isPasscodeSet ?? false }

    /// What holds at one moment.
    public struct Snapshot: Hashable, Sendable {
        public internal(set) var state: State
        public internal(set) var isPasscodeSet: Bool
        /// Classes whose files can be opened.
        public internal(set) var availableClasses: Set<FileProtectionType>

        /// See `ProtectedData.isAvailable`.
        public var isAvailable: Bool {
            availableClasses.isSuperset(of: [.complete, .completeUnlessOpen])
        }

        /// See `ProtectedData.hasBeenUnlockedSinceBoot`.
        public var hasBeenUnlockedSinceBoot: Bool {
            availableClasses.contains(.completeUntilFirstUserAuthentication)
        }

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

    /// The event of a state comes before the signals of its classes: what a state says of them
    /// holds at once.
    mutating func enter(_ new: ProtectedData.State) {
        state = new
        switch new {
        case .noPasscode, .unlocked, .locking: availableClasses = Set(FileProtectionType.known)
        case .locked, .beforeFirstUnlock, .unknown: withholdClasses()
        }
    }

    /// Those that the state withholds, though a lock or a reboot that has just begun may not have
    /// come to their keys.
    private mutating func withholdClasses() {
        switch state {
        case .locked: availableClasses.subtract([.complete, .completeUnlessOpen])
        case .beforeFirstUnlock: availableClasses = [FileProtectionType.none]
        case .noPasscode, .unlocked, .locking, .unknown: break
        }
    }

    /// Nil where nobody serves the volume, or does not answer this user within ten seconds.
    init?(ofVolumeAt path: String) {
        guard let client = try? ControlClient(volumeAt: path, timeout: .seconds(10)),
            let status = try? client.status()
        else { return nil }
        self.init(status)
    }
}

extension FileProtectionType {
    /// A, B, C, D or CX.
    init?(letter: String) {
        guard let index = ["A", "B", "C", "D", "CX"].firstIndex(of: letter) else { return nil }
        self = FileProtectionType.known[index]
    }
}
