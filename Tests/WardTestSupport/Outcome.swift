/// The result of one system call: its value as text, or the name of its error or of the signal it
/// raised.
package struct Outcome: Equatable, CustomStringConvertible, Sendable {
    package let succeeded: Bool
    package let text: String

    package init(succeeded: Bool, text: String) {
        self.succeeded = succeeded
        self.text = text
    }

    package var description: String {
        succeeded ? (text.isEmpty ? "ok" : "ok(\(shortened))") : text
    }

    private var shortened: String {
        text.count > 80 ? "\(text.prefix(77))… \(text.count) characters" : text
    }

    /// Success without a value to compare.
    package static let ok = Outcome(succeeded: true, text: "")
    package static let eperm = failure("EPERM")
    package static let eacces = failure("EACCES")
    package static let einval = failure("EINVAL")
    package static let enoent = failure("ENOENT")
    package static let eexist = failure("EEXIST")
    package static let erofs = failure("EROFS")
    package static let enodata = failure("ENODATA")
    package static let enxio = failure("ENXIO")
    package static let enospc = failure("ENOSPC")
    package static let sigbus = failure("SIGBUS")

    package static func failure(_ name: String) -> Outcome { Outcome(succeeded: false, text: name) }
    package static func data(_ text: String) -> Outcome { Outcome(succeeded: true, text: text) }
    package static func number(_ value: Int) -> Outcome {
        Outcome(succeeded: true, text: String(value))
    }
}
