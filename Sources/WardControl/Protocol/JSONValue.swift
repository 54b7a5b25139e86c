import WardSystem

/// A JSON value, RFC 8259. Members of objects keep their order.
///
/// ward has its own parser (`JSONParser`) because secret strings must never become a `String`.
public enum JSONValue: Sendable {
    case null
    case bool(Bool)
    case int(Int64)
    case double(Double)
    case string(String)
    case array([JSONValue])
    case object([(key: String, value: JSONValue)])
    /// A string that stayed in locked memory: a member that `JSONParser` was told to keep there.
    case secret(Secret)

    /// Holds secret bytes so that a value can be copied without copying them.
    public final class Secret: Sendable {
        public let bytes: SecretBytes
        public init(_ bytes: consuming SecretBytes) { self.bytes = bytes }
    }

    /// A member of an object; nil for other values and absent members.
    public subscript(_ key: String) -> JSONValue? {
        guard case .object(let members) = self else { return nil }
        return members.first { $0.key == key }?.value
    }

    public var stringValue: String? {
        if case .string(let value) = self { value } else { nil }
    }

    public var boolValue: Bool? {
        if case .bool(let value) = self { value } else { nil }
    }

    public var intValue: Int? {
        if case .int(let value) = self { Int(value) } else { nil }
    }

    /// The value of any number.
    public var doubleValue: Double? {
        switch self {
        case .int(let value): Double(value)
        case .double(let value): value
        default: nil
        }
    }

    public var arrayValue: [JSONValue]? {
        if case .array(let value) = self { value } else { nil }
    }

    public var secretValue: Secret? {
        if case .secret(let value) = self { value } else { nil }
    }

    /// An object of the members whose values are not nil.
    public static func object(present members: [(key: String, value: JSONValue?)]) -> JSONValue {
        .object(members.compactMap { member in member.value.map { (member.key, $0) } })
    }

    /// The JSON text; `pretty` breaks lines and indents by two spaces. A secret is written as null.
    public func text(pretty: Bool = false) -> String {
        var out: [UInt8] = []
        append(to: &out, indent: pretty ? 0 : nil)
        return String(decoding: out, as: UTF8.self)
    }

    /// The text as UTF-8, on one line.
    public var bytes: [UInt8] {
        var out: [UInt8] = []
        append(to: &out, indent: nil)
        return out
    }

    private func append(to out: inout [UInt8], indent: Int?) {
        switch self {
        case .null, .secret: out += "null".utf8
        case .bool(let value): out += (value ? "true" : "false").utf8
        case .int(let value): out += String(value).utf8
        case .double(let value): out += (value.isFinite ? "\(value)" : "null").utf8
        case .string(let value): JSONValue.append(value, to: &out)
        case .array(let values):
            JSONValue.appendList(values, in: ("[", "]"), to: &out, indent: indent) {
                value, out, indent in
                value.append(to: &out, indent: indent)
            }
        case .object(let members):
            JSONValue.appendList(members, in: ("{", "}"), to: &out, indent: indent) {
                member, out, indent in
                JSONValue.append(member.key, to: &out)
                out += (indent == nil ? ":" : ": ").utf8
                member.value.append(to: &out, indent: indent)
            }
        }
    }

    private static func appendList<Element>(
        _ elements: [Element], in brackets: (String, String), to out: inout [UInt8], indent: Int?,
        _ body: (Element, inout [UInt8], Int?) -> Void
    ) {
        out += brackets.0.utf8
        for (index, element) in elements.enumerated() {
            if index > 0 { out.append(UInt8(ascii: ",")) }
            if let indent { appendLine(to: &out, indent: indent + 1) }
            body(element, &out, indent.map { $0 + 1 })
        }
        if let indent, !elements.isEmpty { appendLine(to: &out, indent: indent) }
        out += brackets.1.utf8
    }

    private static func appendLine(to out: inout [UInt8], indent: Int) {
        out.append(UInt8(ascii: "\n"))
        out += repeatElement(UInt8(ascii: " "), count: indent * 2)
    }

    private static func append(_ text: String, to out: inout [UInt8]) {
        out.append(UInt8(ascii: "\""))
        var lead: UInt8 = 0
        for byte in text.utf8 {
            if lead == 0xC2, byte < 0xA0 {
                // U+0080 to U+009F: control characters to a terminal, as ESC is.
                out.removeLast()
                appendUnicodeEscape(byte) { out.append($0) }
            } else {
                appendEscaped(byte) { out.append($0) }
            }
            lead = byte
        }
        out.append(UInt8(ascii: "\""))
    }

    /// Passes on the bytes that stand for `byte` inside a JSON string.
    static func appendEscaped(_ byte: UInt8, _ put: (UInt8) -> Void) {
        switch byte {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"):
            put(UInt8(ascii: "\\"))
            put(byte)
        case 0..<0x20, 0x7f: appendUnicodeEscape(byte, put)
        default: put(byte)
        }
    }

    /// Passes on `\u00XX`.
    private static func appendUnicodeEscape(_ scalar: UInt8, _ put: (UInt8) -> Void) {
        for digit in "\\u00".utf8 { put(digit) }
        for nibble in [scalar >> 4, scalar & 15] {
            put(nibble < 10 ? UInt8(ascii: "0") + nibble : UInt8(ascii: "a") - 10 + nibble)
        }
    }
}

extension JSONValue: Equatable {
    /// Secrets are equal where they are the same object.
    public static func == (left: JSONValue, right: JSONValue) -> Bool {
        switch (left, right) {
        case (.null, .null): true
        case (.bool(let left), .bool(let right)): left == right
        case (.int(let left), .int(let right)): left == right
        case (.double(let left), .double(let right)): left == right
        case (.string(let left), .string(let right)): left == right
        case (.array(let left), .array(let right)): left == right
        case (.object(let left), .object(let right)):
            left.count == right.count
                && zip(left, right).allSatisfy { $0.key == $1.key && $0.value == $1.value }
        case (.secret(let left), .secret(let right)): left === right
        default: false
        }
    }
}
