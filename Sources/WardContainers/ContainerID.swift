/// The name of a container and of its directory: the bundle identifier of an app or extension, or
/// the identifier of a group of apps. Letters, digits, `.`, `-` and `_`, with no empty part between
/// dots; at most 155 bytes.
public struct ContainerID: Hashable, Sendable, CustomStringConvertible {
    /// The longest bundle identifier that Apple takes, bytes. Any backing file system stores such a
    /// name as a name of its own.
    public static let maximumBytes = 155

    public let text: String

    /// Throws the reason where the text is no container ID.
    public init(_ text: String) throws(Invalid) {
        if let reason = ContainerID.fault(of: text) { throw Invalid(text: text, reason: reason) }
        self.text = text
    }

    public var description: String { text }

    /// The reason why a text is no ID.
    public struct Invalid: Error, Equatable, Sendable {
        public let text: String
        /// "it has a slash in it"
        public let reason: String
    }

    private static func fault(of text: String) -> String? {
        let bytes = Array(text.utf8)
        if bytes.isEmpty { return "it is empty" }
        if bytes.count > maximumBytes {
            return "it has \(bytes.count) bytes, and \(maximumBytes) are the most"
        }
        if bytes.contains(where: { $0 < 0x20 || $0 == 0x7F }) {
            return "it has a control character in it"
        }
        if bytes.contains(UInt8(ascii: "/")) { return "it has a slash in it" }
        if bytes.allSatisfy({ $0 == UInt8(ascii: ".") }) {
            return "it consists of dots, and names a directory that is there"
        }
        if text.contains("$(") || text.contains("${") {
            return "it has a variable in it that Xcode fills in when it signs the app"
        }
        if bytes.first == UInt8(ascii: "-") { return "it begins with a hyphen, as an option does" }
        if let other = text.unicodeScalars.first(where: { !isAllowed($0) }) {
            let code = String(other.value, radix: 16, uppercase: true)
            return "it has a character in it that is no letter of ASCII, digit, dot, hyphen or "
                + "underscore (U+\(String(repeating: "0", count: max(0, 4 - code.count)))\(code))"
        }
        let parts = bytes.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        return parts.contains(where: \.isEmpty) ? "a part between its dots is empty" : nil
    }

    private static func isAllowed(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar {
        case "a"..."z", "A"..."Z", "0"..."9", ".", "-", "_": true
        default: false
        }
    }
}
