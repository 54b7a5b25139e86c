import WardControl
import WardSystem

/// A failure in words for users: the action, its object, the reason, and the next step.
///
/// Printed on stderr as exactly two lines (one where there is nothing to advise):
/// ```
/// ward: error: cannot mount /srv/papers: it is mounted already, on /home/ada/papers
/// ward: hint: ward unmount /home/ada/papers
/// ```
package struct CommandFailure: Error, Sendable {
    /// The action that failed: "cannot mount".
    package var what: String
    /// The path of the action.
    package var subject: String?
    package var why: String
    /// The next command, ready to paste, or short advice.
    package var hint: String?
    package var status: ExitStatus

    package init(
        _ what: String, _ subject: String? = nil, why: String, hint: String? = nil,
        status: ExitStatus
    ) {
        self.what = what
        self.subject = subject
        self.why = why
        self.hint = hint
        self.status = status
    }

    /// A failed system call, in the words of strerror(3).
    package init(
        _ what: String, _ subject: String? = nil, errno: Errno, hint: String? = nil,
        status: ExitStatus? = nil
    ) {
        self.init(
            what, subject, why: Text.reason(errno), hint: hint ?? Self.advice(errno, subject),
            status: status ?? CommandFailure.status(for: errno))
    }

    /// Both lines, without a newline at the end.
    package var rendered: String {
        let subject = subject.map { " " + Text.printable($0) } ?? ""
        var text = "ward: error: \(what)\(subject): \(Text.oneLine(why))"
        if let hint { text += "\nward: hint: \(Text.oneLine(hint))" }
        return text
    }

    /// General advice for a failed system call.
    private static func advice(_ errno: Errno, _ subject: String?) -> String? {
        let place = subject.map { " " + Text.shellQuoted($0) } ?? ""
        return switch errno {
        case .noSuchFileOrDirectory, .notDirectory, .isDirectory: "check the path"
        case .permissionDenied, .notPermitted: "ls -ld\(place) shows who may"
        case .readOnlyFileSystem: "mount that file system writable, or choose another place"
        case .noSpace: "make room there: df -h\(place)"
        default: nil
        }
    }

    private static func status(for errno: Errno) -> ExitStatus {
        switch errno {
        case .noSuchFileOrDirectory, .notDirectory, .isDirectory: .noInput
        case .permissionDenied, .notPermitted: .notPermitted
        case .noSpace, .readOnlyFileSystem, .fileExists: .cannotCreate
        case .ioError: .inputOutput
        case .resourceBusy, .wouldBlock: .temporary
        default: .system
        }
    }
}
