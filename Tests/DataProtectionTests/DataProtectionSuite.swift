import CWardLinux
import DataProtection
import Testing
import WardTestSupport

/// The library on real mounts, served by the built program in a child process. After the last test
/// none of our mounts, processes or files may be left.
///
/// A test file imports `DataProtection` and `Testing`, and not Foundation: with both, calls that
/// are in both are ambiguous (`ImportTests`).
@Suite(.leavesNothingBehind) enum DataProtectionSuite {}

extension MountedVolume {
    /// A volume of this process's user, mounted and unlocked.
    static func mine(
        passcode: String? = MountedVolume.passcode, mountArguments: [String] = []
    ) throws -> MountedVolume {
        try MountedVolume(
            as: User.available[0], passcode: passcode, mountArguments: mountArguments)
    }

    /// The URL of an item on the volume.
    func url(_ name: String) -> URL { URL(fileURLWithPath: mountPoint + "/" + name) }

    /// The names in a directory, hidden ones included.
    func names(in directory: String = "") throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: url(directory).path).sorted()
    }

    /// The class of an item.
    func protection(_ name: String) throws -> FileProtectionType? {
        try FileManager.default.attributesOfItem(atPath: url(name).path)[.protectionKey]
            as? FileProtectionType
    }

    /// Makes a directory whose new files get this class.
    func makeDirectory(_ name: String, _ fileClass: FileClass) throws {
        try FileManager.default.createDirectory(
            at: url(name), withIntermediateDirectories: false,
            attributes: [.protectionKey: fileClass.type])
    }

    /// Runs `check` in each state and for each class; S0 on a volume of its own.
    static func walk(
        prepare: (MountedVolume, FileClass) throws -> Void = { _, _ in },
        check: (MountedVolume, LockState, FileClass) throws -> Void
    ) throws {
        for passcode in [nil, MountedVolume.passcode] {
            let volume = try MountedVolume.mine(passcode: passcode)
            for fileClass in FileClass.allCases { try prepare(volume, fileClass) }
            for state in passcode == nil ? [.noPasscode] : LockState.walk {
                try volume.enter(state)
                for fileClass in FileClass.allCases { try check(volume, state, fileClass) }
            }
        }
    }
}

extension FileClass {
    var type: FileProtectionType { FileProtectionType(rawValue: apple) }

    var option: Data.WritingOptions {
        switch self {
        case .complete: .completeFileProtection
        case .completeUnlessOpen: .completeFileProtectionUnlessOpen
        case .completeUntilFirstUserAuthentication:
            .completeFileProtectionUntilFirstUserAuthentication
        case .none: .noFileProtection
        case .completeWhenUserInactive: .completeFileProtectionWhenUserInactive
        }
    }

    var resource: URLFileProtection {
        switch self {
        case .complete: .complete
        case .completeUnlessOpen: .completeUnlessOpen
        case .completeUntilFirstUserAuthentication: .completeUntilFirstUserAuthentication
        case .none: .none
        case .completeWhenUserInactive: .completeWhenUserInactive
        }
    }
}

extension LockState {
    var told: ProtectedData.State {
        switch self {
        case .noPasscode: .noPasscode
        case .beforeFirstUnlock: .beforeFirstUnlock
        case .unlocked: .unlocked
        case .locking: .locking
        case .locked, .lockedInactive: .locked
        }
    }
}

/// Runs `body` as an ordinary user, on this thread alone: setfsuid(2) decides the permissions.
func asOrdinaryUser<R>(_ body: () -> R) -> R {
    guard geteuid() == 0 else { return body() }
    _ = ward_set_thread_fsgid(65534)
    _ = ward_set_thread_fsuid(65534)
    defer {
        _ = ward_set_thread_fsuid(0)
        _ = ward_set_thread_fsgid(0)
    }
    return body()
}

/// The error that a call threw; nil if it threw none.
func failure(_ body: () throws -> Void) -> NSError? {
    do {
        try body()
        return nil
    } catch {
        return error as NSError
    }
}

/// The POSIX error underneath.
func posix(_ error: NSError?) -> Int32? {
    guard let below = error?.userInfo[NSUnderlyingErrorKey] as? any Error else { return nil }
    let error = below as NSError
    return error.domain == NSPOSIXErrorDomain ? Int32(error.code) : nil
}

/// Expects success, or the error that iOS gives for a locked class.
func expect(
    _ isAllowed: Bool, else code: CocoaError.Code, _ fileClass: FileClass, _ state: LockState,
    _ what: String, sourceLocation: SourceLocation = #_sourceLocation, _ body: () throws -> Void
) {
    let error = failure(body)
    if isAllowed {
        #expect(error == nil, "\(what)", sourceLocation: sourceLocation)
        return
    }
    #expect(
        error?.domain == NSCocoaErrorDomain && error?.code == code.rawValue, "\(what)",
        sourceLocation: sourceLocation)
    #expect(posix(error) == EPERM, "\(what)", sourceLocation: sourceLocation)
    #expect(
        error.flatMap { DataProtectionError($0) }
            == .locked(class: fileClass.type, state: state.told), "\(what)",
        sourceLocation: sourceLocation)
}
