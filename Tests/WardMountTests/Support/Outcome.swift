/// What one system call came to: its value as text, or the name of its error or of the signal it raised.
struct Outcome: Equatable, CustomStringConvertible, Sendable {
    let succeeded: Bool
    let text: String

    var description: String { succeeded ? (text.isEmpty ? "ok" : "ok(\(shortened))") : text }

    private var shortened: String {
        text.count > 80 ? "\(text.prefix(77))… \(text.count) characters" : text
    }

    /// Success without a value worth comparing.
    static let ok = Outcome(succeeded: true, text: "")
    static let eperm = failure("EPERM")
    static let eacces = failure("EACCES")
    static let einval = failure("EINVAL")
    static let enoent = failure("ENOENT")
    static let eexist = failure("EEXIST")
    static let erofs = failure("EROFS")
    static let enodata = failure("ENODATA")
    static let enxio = failure("ENXIO")
    static let enospc = failure("ENOSPC")
    static let sigbus = failure("SIGBUS")

    static func failure(_ name: String) -> Outcome { Outcome(succeeded: false, text: name) }
    static func data(_ text: String) -> Outcome { Outcome(succeeded: true, text: text) }
    static func number(_ value: Int) -> Outcome { Outcome(succeeded: true, text: String(value)) }
}
