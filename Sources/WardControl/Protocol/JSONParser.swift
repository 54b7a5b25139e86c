import Glibc
import WardSystem

/// The reason why bytes are not JSON, or not JSON that ward takes. Never quotes the bytes: they may
/// hold a secret.
public struct JSONError: Error, Equatable, Sendable, CustomStringConvertible {
    /// Bytes from the beginning of the text.
    public let offset: Int
    public let description: String
}

/// Parses one JSON text in place, RFC 8259, strictly: UTF-8, no duplicate members, at most 32
/// levels.
///
/// Strings of the members in `secretMembers` are unescaped in place, copied into locked memory and
/// wiped from the text before the parser goes on. They never become a `String`.
public struct JSONParser: ~Copyable {
    static let maximumDepth = 32
    /// Longest name of a member, bytes.
    static let maximumNameBytes = 128

    private let base: UnsafeMutablePointer<UInt8>
    private let count: Int
    private let secretMembers: Set<String>
    private var valuesLeft: Int
    private var at = 0

    /// Parses all of `text`; the caller wipes it afterwards. Refuses more than `maximumValues`
    /// values, nested ones included, so that a hostile text costs little.
    public static func parse(
        _ text: UnsafeMutableRawBufferPointer, secretMembers: Set<String> = [],
        maximumValues: Int = .max
    ) throws(JSONError) -> JSONValue {
        guard let base = text.baseAddress else {
            throw JSONError(offset: 0, description: "the text is empty")
        }
        var parser = JSONParser(
            base: base.assumingMemoryBound(to: UInt8.self), count: text.count,
            secretMembers: secretMembers, maximumValues: maximumValues)
        let value = try parser.parseValue(depth: 0)
        parser.skipSpace()
        if parser.at != parser.count { throw parser.error("something follows the value") }
        return value
    }

    /// Parses text that holds no secrets.
    public static func parse(_ text: [UInt8]) throws(JSONError) -> JSONValue {
        var copy = text
        return try copy.withUnsafeMutableBufferPointer { (bytes) throws(JSONError) in
            try parse(UnsafeMutableRawBufferPointer(bytes))
        }
    }

    private init(
        base: UnsafeMutablePointer<UInt8>, count: Int, secretMembers: Set<String>,
        maximumValues: Int
    ) {
        valuesLeft = maximumValues
        self.base = base
        self.count = count
        self.secretMembers = secretMembers
    }

    private func error(_ description: String) -> JSONError {
        JSONError(offset: at, description: description)
    }

    private var next: UInt8? { at < count ? base[at] : nil }

    private mutating func skipSpace() {
        while let byte = next, byte == 0x20 || byte == 0x0A || byte == 0x0D || byte == 0x09 {
            at += 1
        }
    }

    private mutating func take(_ expected: UInt8) -> Bool {
        guard next == expected else { return false }
        at += 1
        return true
    }

    private mutating func parseValue(depth: Int) throws(JSONError) -> JSONValue {
        if depth > JSONParser.maximumDepth { throw error("nested too deeply") }
        if valuesLeft == 0 { throw error("too many values") }
        valuesLeft -= 1
        skipSpace()
        switch next {
        case nil: throw error("the text ends early")
        case UInt8(ascii: "{"): return try parseObject(depth: depth)
        case UInt8(ascii: "["): return try parseArray(depth: depth)
        case UInt8(ascii: "\""):
            let range = try unescapeString()
            return .string(try string(range))
        case UInt8(ascii: "t"): return try parseWord("true", .bool(true))
        case UInt8(ascii: "f"): return try parseWord("false", .bool(false))
        case UInt8(ascii: "n"): return try parseWord("null", .null)
        default: return try parseNumber()
        }
    }

    private mutating func parseWord(
        _ word: StaticString, _ value: JSONValue
    ) throws(JSONError) -> JSONValue {
        guard count - at >= word.utf8CodeUnitCount,
            memcmp(base + at, word.utf8Start, word.utf8CodeUnitCount) == 0
        else { throw error("expected a value") }
        at += word.utf8CodeUnitCount
        return value
    }

    private mutating func parseObject(depth: Int) throws(JSONError) -> JSONValue {
        at += 1
        var members: [(key: String, value: JSONValue)] = []
        // A set, because comparing all names with each other would take seconds for a message full
        // of them.
        var names: Set<String> = []
        skipSpace()
        if take(UInt8(ascii: "}")) { return .object(members) }
        while true {
            skipSpace()
            if next != UInt8(ascii: "\"") { throw error("expected the name of a member") }
            let nameRange = try unescapeString()
            if nameRange.count > JSONParser.maximumNameBytes { throw error("a name is too long") }
            let name = try string(nameRange)
            if !names.insert(name).inserted { throw error("a member is there twice") }
            skipSpace()
            if !take(UInt8(ascii: ":")) { throw error("expected a colon") }
            let value =
                secretMembers.contains(name)
                ? try parseSecret() : try parseValue(depth: depth + 1)
            members.append((name, value))
            skipSpace()
            if take(UInt8(ascii: ",")) { continue }
            if take(UInt8(ascii: "}")) { return .object(members) }
            throw error("expected a comma or a brace")
        }
    }

    private mutating func parseArray(depth: Int) throws(JSONError) -> JSONValue {
        at += 1
        var values: [JSONValue] = []
        skipSpace()
        if take(UInt8(ascii: "]")) { return .array(values) }
        while true {
            values.append(try parseValue(depth: depth + 1))
            skipSpace()
            if take(UInt8(ascii: ",")) { continue }
            if take(UInt8(ascii: "]")) { return .array(values) }
            throw error("expected a comma or a bracket")
        }
    }

    /// Parses a string into locked memory, or null. Other values are refused unread, since they
    /// might contain the secret.
    private mutating func parseSecret() throws(JSONError) -> JSONValue {
        skipSpace()
        if next == UInt8(ascii: "n") { return try parseWord("null", .null) }
        if next != UInt8(ascii: "\"") { throw error("expected a string") }
        let start = at
        let range = try unescapeString()
        let source = UnsafeRawBufferPointer(start: base + range.lowerBound, count: range.count)
        let secret: SecretBytes
        do throws(Errno) {
            secret = try SecretBytes(copying: source)
        } catch {
            throw self.error("no memory can be locked for a secret")
        }
        explicit_bzero(base + start, at - start)
        return .secret(JSONValue.Secret(secret))
    }

    // MARK: Strings

    private func string(_ range: Range<Int>) throws(JSONError) -> String {
        let bytes = UnsafeBufferPointer(start: base + range.lowerBound, count: range.count)
        guard let text = String(validating: bytes, as: UTF8.self) else {
            throw error("a string is not UTF-8")
        }
        return text
    }

    /// Unescapes in place the string that begins here, which never gets longer, and moves past it.
    private mutating func unescapeString() throws(JSONError) -> Range<Int> {
        at += 1
        let start = at
        var out = at
        while let byte = next {
            switch byte {
            case UInt8(ascii: "\""):
                at += 1
                // The bytes freed by unescaping still hold characters of the string.
                explicit_bzero(base + out, at - 1 - out)
                return start..<out
            case 0..<0x20: throw error("a control character in a string")
            case UInt8(ascii: "\\"):
                at += 1
                try unescapeOne(&out)
            default:
                base[out] = byte
                out += 1
                at += 1
            }
        }
        throw error("a string does not end")
    }

    private mutating func unescapeOne(_ out: inout Int) throws(JSONError) {
        guard let byte = next else { throw error("a string does not end") }
        at += 1
        let plain: UInt8
        switch byte {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): plain = byte
        case UInt8(ascii: "b"): plain = 0x08
        case UInt8(ascii: "f"): plain = 0x0C
        case UInt8(ascii: "n"): plain = 0x0A
        case UInt8(ascii: "r"): plain = 0x0D
        case UInt8(ascii: "t"): plain = 0x09
        case UInt8(ascii: "u"):
            try unescapeUnicode(&out)
            return
        default: throw error("an unknown escape")
        }
        base[out] = plain
        out += 1
    }

    private mutating func unescapeUnicode(_ out: inout Int) throws(JSONError) {
        var scalar = try hexadecimalDigits()
        if scalar & 0xFC00 == 0xD800 {
            guard take(UInt8(ascii: "\\")), take(UInt8(ascii: "u")) else {
                throw error("half a surrogate pair")
            }
            let low = try hexadecimalDigits()
            guard low & 0xFC00 == 0xDC00 else { throw error("half a surrogate pair") }
            scalar = 0x10000 + (scalar & 0x3FF) << 10 + low & 0x3FF
        } else if scalar & 0xFC00 == 0xDC00 {
            throw error("half a surrogate pair")
        }
        // Six characters become at most three bytes, twelve become four: `out` stays behind `at`.
        switch scalar {
        case 0..<0x80: put(UInt8(scalar), &out)
        case 0x80..<0x800:
            put(UInt8(0xC0 | scalar >> 6), &out)
            put(UInt8(0x80 | scalar & 0x3F), &out)
        case 0x800..<0x10000:
            put(UInt8(0xE0 | scalar >> 12), &out)
            put(UInt8(0x80 | scalar >> 6 & 0x3F), &out)
            put(UInt8(0x80 | scalar & 0x3F), &out)
        default:
            put(UInt8(0xF0 | scalar >> 18), &out)
            put(UInt8(0x80 | scalar >> 12 & 0x3F), &out)
            put(UInt8(0x80 | scalar >> 6 & 0x3F), &out)
            put(UInt8(0x80 | scalar & 0x3F), &out)
        }
    }

    private func put(_ byte: UInt8, _ out: inout Int) {
        base[out] = byte
        out += 1
    }

    private mutating func hexadecimalDigits() throws(JSONError) -> UInt32 {
        var value: UInt32 = 0
        for _ in 0..<4 {
            guard let byte = next, let digit = Character(UnicodeScalar(byte)).hexDigitValue else {
                throw error("expected four hexadecimal digits")
            }
            value = value << 4 | UInt32(digit)
            at += 1
        }
        return value
    }

    // MARK: Numbers

    private mutating func parseNumber() throws(JSONError) -> JSONValue {
        let start = at
        _ = take(UInt8(ascii: "-"))
        let whole = skipDigits()
        if whole == 0 || (whole > 1 && base[at - whole] == UInt8(ascii: "0")) {
            throw error("expected a value")
        }
        var isWhole = true
        if take(UInt8(ascii: ".")) {
            isWhole = false
            if skipDigits() == 0 { throw error("expected digits") }
        }
        if next == UInt8(ascii: "e") || next == UInt8(ascii: "E") {
            isWhole = false
            at += 1
            if !take(UInt8(ascii: "+")) { _ = take(UInt8(ascii: "-")) }
            if skipDigits() == 0 { throw error("expected digits") }
        }
        let digits = try string(start..<at)
        if isWhole, let value = Int64(digits) { return .int(value) }
        guard let value = Double(digits), value.isFinite else {
            throw error("a number is too large")
        }
        return .double(value)
    }

    private mutating func skipDigits() -> Int {
        let start = at
        while let byte = next, byte >= UInt8(ascii: "0"), byte <= UInt8(ascii: "9") { at += 1 }
        return at - start
    }
}
