internal import WardControl
internal import WardSystem

/// The lock state of a ward volume, as `UIApplication.isProtectedDataAvailable` and its notifications tell it on iOS.
///
/// Asking connects to the volume's control socket, and costs nothing while nobody asks. Off a ward volume, and while no
/// daemon serves it, there is nothing that is protected and could be opened: `snapshot` is nil and `isAvailable` false.
public struct ProtectedData: Sendable {
    /// A state of semantics.md.
    public enum State: String, Hashable, Sendable {
        case noPasscode, beforeFirstUnlock, unlocked, locking, locked
    }

    /// An item on the volume.
    public let url: URL

    /// The volume that holds `url`.
    public init(at url: URL) { self.url = url }

    /// The volume of the home directory; that of `$WARD_TEST_VOLUME` for a program run by `ward test`.
    public static var shared: ProtectedData {
        let environment = ProcessInfo.processInfo.environment
        return ProtectedData(
            at: URL(fileURLWithPath: environment["WARD_TEST_VOLUME"] ?? NSHomeDirectory()))
    }

    /// What holds now; nil where nobody serves the volume, or there is none.
    public var snapshot: Snapshot? { Snapshot(ofVolumeAt: url.path) }

    /// Row L8: false exactly while files of class A and B can't be opened.
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
        public let state: State
        /// Row L8.
        public let isAvailable: Bool
        public let hasBeenUnlockedSinceBoot: Bool
        public let isPasscodeSet: Bool
        /// Classes whose files can be opened.
        public let availableClasses: Set<FileProtectionType>

        public func isAvailable(for protection: FileProtectionType) -> Bool {
            availableClasses.contains(protection)
        }

        init?(_ status: VolumeStatus) {
            guard let state = State(rawValue: status.state) else { return nil }
            self.state = state
            isAvailable = status.protectedDataAvailable
            hasBeenUnlockedSinceBoot = status.firstUnlockHappened
            isPasscodeSet = status.passcodeSet
            availableClasses = Set(
                status.classes.filter(\.available).compactMap {
                    FileProtectionType(letter: $0.letter)
                })
        }

        init?(ofVolumeAt path: String) {
            guard let socket = try? VolumeAttributes.text(VolumeAttributes.socket, at: path),
                let status = try? ControlClient(socketPath: socket, timeout: .seconds(10)).status()
            else { return nil }
            self.init(status)
        }
    }
}

extension FileProtectionType {
    /// A, B, C, D or CX.
    init?(letter: String) {
        guard let index = ["A", "B", "C", "D", "CX"].firstIndex(of: letter) else { return nil }
        self = FileProtectionType.known[index]
    }
}
