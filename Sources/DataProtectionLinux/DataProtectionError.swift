internal import WardSystem

/// The reason that Foundation's errors do not give: a file exists and is undamaged, but can't be
/// opened *now*.
///
/// The calls throw `CocoaError` as on iOS, 257 (`fileReadNoPermission`) or 513
/// (`fileWriteNoPermission`), with the POSIX error underneath. Make a `DataProtectionError` of it:
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
    /// Files of this class can't be opened, read, written or created in the volume's present state.
    case locked(class: FileProtectionType, state: ProtectedData.State)
    /// The string or value does not name one of Apple's protection classes.
    case unknownClass(String)

    /// The key of `userInfo` under which the module's own calls keep the reason.
    static let userInfoKey = "WardDataProtectionErrorKey"

    /// The reason of an error; nil for other reasons, such as permissions, a missing file or
    /// damage.
    ///
    /// Foundation's own calls know nothing of classes. For their errors this looks at the file that
    /// the error names, and reports the volume's state now.
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

    static func posixCode(of error: NSError) -> Int32? {
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

    /// Returns `locked` if the class of the file, or the class that it would be created with, can't
    /// be opened now.
    static func lookUp(_ path: String, asking wanted: FileProtectionType? = nil) -> Self? {
        let isThere = VolumeAttributes.isOnVolume(path)
        let place = isThere ? path : Paths.directory(of: path)
        guard VolumeAttributes.isOnVolume(place) else { return nil }
        // Files have keys; directories have none.
        let isFile = (try? Syscall.stat(place)).map { $0.st_mode & S_IFMT == S_IFREG } ?? false
        let present = try? VolumeAttributes.protection(ofItemAt: place)
        var candidates: [FileProtectionType] = []
        if let present, isFile { candidates.append(present) }
        if let needed = wanted ?? (isThere ? nil : present), needed != .completeUnlessOpen {
            // A new file of class B needs no secret key.
            candidates.append(needed)
        }
        guard let status = ProtectedData.Snapshot(ofVolumeAt: place) else {
            // The daemon does not answer this program. Only a lock refuses to open a file for
            // reading with EPERM.
            guard isFile, let present, refusesToOpen(place) else { return nil }
            return .locked(class: present, state: .unknown)
        }
        return candidates.first { !status.isAvailable(for: $0) }
            .map { .locked(class: $0, state: status.state) }
    }
}

extension DataProtectionError {
    private static func refusesToOpen(_ path: String) -> Bool {
        do throws(Errno) {
            _ = try OwnedDescriptor(opening: path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
            return false
        } catch {
            return error == .notPermitted
        }
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
