import WardSystem

/// A failed call to a volume's daemon.
public struct ControlError: Error, Sendable, CustomStringConvertible {
    public enum Code: Sendable, Equatable {
        /// There is no socket: the volume is not mounted.
        case noSocket
        /// The socket is there, but no process listens: the daemon died.
        case refused
        /// The daemon belongs to another user.
        case permission
        /// The program that listens there is not the mount's daemon.
        case replaced
        /// Another user made the mount, and only that user may enter.
        case mountOfAnother
        /// The path is not inside a mounted volume.
        case notInMount
        /// No volume is mounted, and none was named.
        case noneMounted
        /// Several volumes are mounted, and none was named.
        case severalMounted([FoundVolume])
        /// The daemon answered with this error of its interface.
        case volume(VolumeError)
        /// The daemon answered with another Varlink error.
        case varlink(name: String, parameters: JSONValue)
        /// The bytes that came back are no answer.
        case protocolViolation
        /// The connection ended before the answer: the daemon stopped.
        case connectionLost
        /// The answer did not come in time.
        case timedOut
        case system(Errno)
    }

    public let code: Code
    /// The socket, directory or file that the error is about.
    public let path: String
    /// The fault, in a few words.
    public let reason: String

    public init(_ code: Code, path: String, _ reason: String) {
        self.code = code
        self.path = path
        self.reason = reason
    }

    public var description: String { "\(path): \(reason)" }
}
