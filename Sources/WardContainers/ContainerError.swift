import WardSystem

/// A failure with containers: its subject and its reason.
public struct ContainerError: Error, Equatable, Sendable, CustomStringConvertible {
    public enum Code: Equatable, Sendable {
        /// No container has this ID.
        case notFound
        /// The place holds something that is no container, or a container of another kind.
        case occupied
        /// The container or group belongs to another team.
        case otherTeam
        /// Apps still name the group.
        case inUse
        /// Another program makes or removes containers.
        case busy
        /// The container or its groups changed since the user agreed to the removal.
        case changed
        /// The record does not fit into an attribute.
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
