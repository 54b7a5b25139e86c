import WardSystem

/// Why a call to a volume's daemon did not work.
public struct ControlError: Error, Sendable, CustomStringConvertible {
    public enum Code: Sendable, Equatable {
        /// No socket there: the volume is not mounted.
        case noSocket
        /// A socket, and nobody behind it: the daemon died.
        case refused
        /// The daemon belongs to somebody else.
        case permission
        /// The program that listens there is not the mount's daemon.
        case replaced
        /// The mount was made by another user, who alone may enter.
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
        /// What came back is not an answer.
        case protocolViolation
        /// The connection ended before the answer: the daemon stopped.
        case connectionLost
        /// No answer in time.
        case timedOut
        case system(Errno)
    }

    public let code: Code
    /// The socket, directory or file it is about.
    public let path: String
    /// What is wrong, in a few words.
    public let reason: String

    public init(_ code: Code, path: String, _ reason: String) {
        self.code = code
        self.path = path
        self.reason = reason
    }

    public var description: String { "\(path): \(reason)" }
}
