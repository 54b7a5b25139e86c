internal import WardSystem

/// Foundation's error for a system call that failed on a file.
enum FileFailure {
    enum Purpose { case reading, writing }

    /// A `CocoaError` with the POSIX error underneath, as Foundation makes it. It carries
    /// `DataProtectionError.locked` where a lock is the reason. `wanted` is the class that the
    /// caller asked for.
    static func error(
        _ reason: Errno, _ path: String, _ purpose: Purpose,
        asking wanted: FileProtectionType? = nil
    ) -> CocoaError {
        let error = plain(reason, path, purpose)
        guard reason == .notPermitted,
            let locked = DataProtectionError.lookUp(path, asking: wanted)
        else { return error }
        return error.adding(locked)
    }

    /// The same error without a look at the volume.
    static func plain(_ reason: Errno, _ path: String, _ purpose: Purpose) -> CocoaError {
        CocoaError(
            code(reason, purpose),
            userInfo: [
                NSFilePathErrorKey: path, NSURLErrorKey: URL(fileURLWithPath: path),
                NSUnderlyingErrorKey: NSError(
                    domain: NSPOSIXErrorDomain, code: Int(reason.rawValue)),
            ])
    }

    /// Maps as Foundation does (`CocoaError.errorWithFilePath`).
    private static func code(_ reason: Errno, _ purpose: Purpose) -> CocoaError.Code {
        switch (reason, purpose) {
        case (.noSuchFileOrDirectory, .reading): .fileReadNoSuchFile
        case (.noSuchFileOrDirectory, .writing): .fileNoSuchFile
        case (.notPermitted, .reading), (.permissionDenied, .reading): .fileReadNoPermission
        case (.notPermitted, .writing), (.permissionDenied, .writing): .fileWriteNoPermission
        case (.fileNameTooLong, .reading): .fileReadInvalidFileName
        case (.fileNameTooLong, .writing): .fileWriteInvalidFileName
        case (.fileExists, .writing): .fileWriteFileExists
        case (.noSpace, .writing), (.diskQuotaExceeded, .writing): .fileWriteOutOfSpace
        case (.readOnlyFileSystem, .writing): .fileWriteVolumeReadOnly
        case (.notSupported, _): .featureUnsupported
        case (_, .reading): .fileReadUnknown
        case (_, .writing): .fileWriteUnknown
        }
    }

    /// The error for an unknown class: 512 or 256 with `DataProtectionError.unknownClass`.
    static func error(
        _ reason: DataProtectionError, _ path: String, _ purpose: Purpose = .writing
    ) -> CocoaError {
        CocoaError(
            purpose == .writing ? .fileWriteUnknown : .fileReadUnknown,
            userInfo: [
                NSFilePathErrorKey: path, DataProtectionError.userInfoKey: reason,
                NSUnderlyingErrorKey: NSError(domain: NSPOSIXErrorDomain, code: Int(EINVAL)),
                NSLocalizedFailureReasonErrorKey: reason.errorDescription ?? "",
            ])
    }

    /// Adds the lock as the reason to an error of Foundation's own writing. With `replacing`, the
    /// call would have made a new file, which gets the class of its directory.
    static func explained(
        _ error: any Error, _ path: String, replacing: Bool
    ) -> any Error {
        guard let cocoa = error as? CocoaError,
            cocoa.code == .fileWriteNoPermission || cocoa.code == .fileReadNoPermission,
            cocoa.userInfo[DataProtectionError.userInfoKey] == nil,
            DataProtectionError.posixCode(of: cocoa as NSError) == EPERM,
            let locked = DataProtectionError.lookUp(
                path, asking: replacing ? inherited(by: path) : nil)
        else { return error }
        return cocoa.adding(locked)
    }
}

extension FileFailure {
    private static func inherited(by path: String) -> FileProtectionType? {
        try? VolumeAttributes.protection(ofItemAt: Paths.directory(of: path))
    }
}

extension CocoaError {
    fileprivate func adding(_ locked: DataProtectionError) -> CocoaError {
        var information = userInfo
        information[DataProtectionError.userInfoKey] = locked
        information[NSLocalizedFailureReasonErrorKey] = locked.errorDescription
        return CocoaError(code, userInfo: information)
    }
}
