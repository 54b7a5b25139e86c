import WardFormat
import WardSystem

/// A failure with a keybag, its keys or a recovery kit: the reason and the file.
public struct KeybagError: Error, Equatable, Sendable, CustomStringConvertible {
    public enum Code: Equatable, Sendable {
        /// There is no keybag in this directory.
        case notAVolume
        /// The directory has a keybag already.
        case alreadyAVolume
        /// The state directory, or a recovery kit, would lie inside the volume: a copy of the
        /// volume would carry its own key.
        case insideVolume
        /// Neither the keybag nor its copy can be used, or the recovery kit can't.
        case damaged
        /// A later version of ward made the file.
        case newerVersion
        /// This device has no device key for the volume; `path` says where it would be.
        case noDeviceKey
        /// The volume was erased: its effaceable key is gone.
        case erased
        /// `triesLeft` more wrong passcodes disable the volume. The same wrong passcode again does
        /// not count.
        case wrongPasscode(triesLeft: Int)
        /// Too many wrong passcodes: no passcode is tried before this time has passed.
        case tryLater(Duration)
        /// Ten wrong passcodes: only a recovery kit opens the volume.
        case disabled
        /// The operation needs the passcode, and none was given.
        case passcodeNeeded
        /// The volume has no passcode.
        case noPasscodeSet
        /// The volume has a passcode: change it instead.
        case passcodeAlreadySet
        /// The keybag is older than the one this device wrote last.
        case replayed(generation: UInt64, remembered: UInt64)
        /// Another process changed the keybag meanwhile: open it again.
        case changedElsewhere
        /// The recovery code is not the one of this kit.
        case wrongRecoveryCode
        /// The recovery kit's volume is not this one.
        case kitOfAnotherVolume
        /// This device has keys for the volume, in the directory `path`; adopting a copy would
        /// replace them. If `opensThis`, they open the copy, too.
        case deviceHasKeys(opensThis: Bool)
        /// The file in `path` exists already and is not overwritten.
        case fileExists
        /// A trusted host opens no class before the first unlock.
        case beforeFirstUnlock
        /// The host is not trusted: it never was, or it was removed.
        case hostUnknown
        /// The host did not connect for 30 days.
        case hostExpired
        /// A host of that name is trusted already.
        case hostExists
        /// The list of trusted hosts is full.
        case tooManyHosts
        /// Too little memory could be locked (`RLIMIT_MEMLOCK`).
        case outOfLockedMemory
        /// A system call failed.
        case system(Errno)
    }

    public let code: Code
    public let path: String
    /// The fault, in a few words, lower case.
    public let reason: String

    public init(_ code: Code, path: String, _ reason: String) {
        self.code = code
        self.path = path
        self.reason = reason
    }

    public var description: String { "\(path): \(reason)" }
}

extension KeybagError {
    static func system(_ error: Errno, _ path: String, _ attempt: String) -> KeybagError {
        if error == .noMemory {
            return KeybagError(
                .outOfLockedMemory, path: path, "\(attempt): no more memory may be locked")
        }
        return KeybagError(.system(error), path: path, "\(attempt): \(error)")
    }

    static func format(_ error: FormatError, _ path: String) -> KeybagError {
        KeybagError(
            error.code == .newerVersion ? .newerVersion : .damaged, path: path, error.description)
    }

    static func erasedAfterTen(_ path: String) -> KeybagError {
        KeybagError(.erased, path: path, "ten wrong passcodes: the volume has been erased")
    }

    static func noLockedMemory(_ path: String) -> KeybagError {
        KeybagError(.outOfLockedMemory, path: path, "no more memory may be locked")
    }
}
