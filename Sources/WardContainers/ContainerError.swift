import WardSystem

/// Why something can't be done with containers: what it is about, and why not.
public struct ContainerError: Error, Equatable, Sendable, CustomStringConvertible {
    public enum Code: Equatable, Sendable {
        /// No container has this ID.
        case notFound
        /// The place is taken by something that is no container, or by one of another kind.
        case occupied
        /// The container or group belongs to another team.
        case otherTeam
        /// Apps still name the group.
        case inUse
        /// Another program makes or removes containers.
        case busy
        /// What was agreed to is not what is there.
        case changed
        /// The record does not go into an attribute.
        case tooLarge
        /// A system call failed.
        case system(Errno)
    }

    public let code: Code
    /// A container's ID, or a path.
    public let subject: String
    /// "a group container of that name belongs to team ABCDE12345"
    public let reason: String

    public init(_ code: Code, _ subject: String, _ reason: String) {
        self.code = code
        self.subject = subject
        self.reason = reason
    }

    public var description: String { "\(subject): \(reason)" }
}
