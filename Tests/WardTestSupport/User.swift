import Foundation
import Testing

/// The user who runs the daemon and the programs that use its mount.
package enum User: String, CaseIterable, CustomTestStringConvertible, Sendable {
    case root
    case ordinaryUser = "ordinary user"

    package var testDescription: String { rawValue }

    /// The users that this process can become: both for root, else only itself.
    package static var available: [User] { geteuid() == 0 ? allCases : [.ordinaryUser] }

    /// The users of tests that are about something else than the user: the ordinary one, and with
    /// `WARD_TEST_ALL=1` both.
    package static var usual: [User] {
        ProcessInfo.processInfo.environment["WARD_TEST_ALL"] == "1" ? available : [.ordinaryUser]
    }

    package var userID: uid_t { self == .root ? 0 : geteuid() == 0 ? 65534 : geteuid() }
    package var groupID: gid_t { self == .root ? 0 : geteuid() == 0 ? 65534 : getegid() }

    /// The words before a command that make this user run it.
    package var prefix: [String] {
        guard self == .ordinaryUser, geteuid() == 0 else { return [] }
        return ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]
    }
}
