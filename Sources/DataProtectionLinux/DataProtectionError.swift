/// What Foundation's errors don't tell: that a file is there, whole, and can't be opened *now*.
///
/// The calls throw `CocoaError` as on iOS, 257 (`fileReadNoPermission`) and 513 (`fileWriteNoPermission`), with the POSIX
/// error underneath. Ask one of them:
///
/// ```swift
/// do {
///     try Data(contentsOf: url)
/// } catch {
///     guard let locked = DataProtectionError(error) else { throw error }
///     // Come back when ProtectedData says so; nothing is damaged, nothing is missing.
/// }
/// ```
public enum DataProtectionError: Error, Hashable, Sendable {
    /// A file of this class can't be opened, read, written or created in the volume's present state.
    case locked(class: FileProtectionType, state: ProtectedData.State)
    /// Not one of Apple's strings for a protection class.
    case unknownClass(String)

    /// Under this key of `userInfo` the module's own calls leave what they know at the time.
    static let userInfoKey = "WardDataProtectionErrorKey"

    /// What is behind an error: nil where it has other reasons (permissions, a missing file, damage).
    ///
    /// For an error of Foundation's own calls, which know nothing of classes, the file named in it is looked at: what it
    /// says is the state now.
    public init?(_ error: any Error) {
        if let error = error as? DataProtectionError {
            self = error
            return
        }
        let error = error as NSError
        if let known = error.userInfo[DataProtectionError.userInfoKey] as? DataProtectionError {
            self = known
            return
        }
        guard DataProtectionError.posixCode(of: error) == EPERM,
            let path = DataProtectionError.path(of: error),
            let locked = DataProtectionError.lookUp(path)
        else { return nil }
        self = locked
    }

    private static func posixCode(of error: NSError) -> Int32? {
        if error.domain == NSPOSIXErrorDomain { return Int32(error.code) }
        guard let underlying = error.userInfo[NSUnderlyingErrorKey] as? any Error else {
            return nil
        }
        return posixCode(of: underlying as NSError)
    }

    private static func path(of error: NSError) -> String? {
        if let path = error.userInfo[NSFilePathErrorKey] as? String { return path }
        return (error.userInfo[NSURLErrorKey] as? URL)?.path
    }

    /// `locked` where the file's class, or the one it would be created with, can't be opened now.
    static func lookUp(_ path: String, asking wanted: FileProtectionType? = nil) -> Self? {
        let directory = (path as NSString).deletingLastPathComponent
        let place = VolumeAttributes.isOnVolume(path) ? path : directory
        guard let status = ProtectedData.Snapshot(ofVolumeAt: place) else { return nil }
        let present = try? VolumeAttributes.protection(ofItemAt: place)
        for protection in [wanted, present].compactMap({ $0 })
        where !status.isAvailable(for: protection) {
            return .locked(class: protection, state: status.state)
        }
        return nil
    }
}

extension DataProtectionError: LocalizedError {
    public var errorDescription: String? {
        switch self {
        case .locked(let protection, let state):
            "Files of \(protection.rawValue) can't be opened now: the volume is \(state.rawValue)."
        case .unknownClass(let text):
            "\(text) is not a file protection class."
        }
    }
}
