/// A word or sign of Swift source and its place.
struct SwiftToken: Equatable {
    enum Kind: Equatable {
        /// A name or keyword, without backticks.
        case word
        /// `#if`, `#elseif`, `#else`, `#endif` and other directives, with the `#`.
        case directive
        /// One character of punctuation or of an operator.
        case sign
    }

    var kind: Kind
    var text: String
    /// Counted from 1; columns count bytes, as the compiler does.
    var line: Int
    var column: Int
    /// Whether the token is the first on its line.
    var startsLine: Bool
}

/// Cuts Swift source into words and signs, without comments and literals. This part of the grammar
/// is enough to tell code from text (The Swift Programming Language, "Lexical Structure").
struct SwiftTokens {
    private let source: [UInt8]
    private var place = 0
    private var line = 1
    private var lineStart = 0
    private var isLineStart = true
    private var tokens: [SwiftToken] = []
    /// Open interpolations around the place. Each takes two calls on the stack, and a file may nest
    /// very many.
    private var interpolations = 0
    private static let maximumInterpolations = 64

    static func of(_ source: [UInt8]) -> [SwiftToken] {
        var scanner = SwiftTokens(source: source)
        scanner.scan()
        return scanner.tokens
    }

    private init(source: [UInt8]) { self.source = source }

    private func byte(_ ahead: Int = 0) -> UInt8 {
        place + ahead < source.count ? source[place + ahead] : 0
    }

    private var isAtEnd: Bool { place >= source.count }

    private mutating func step() {
        if source[place] == UInt8(ascii: "\n") {
            line += 1
            lineStart = place + 1
            isLineStart = true
        }
        place += 1
    }

    private mutating func skip(_ count: Int) {
        for _ in 0..<count where !isAtEnd { step() }
    }

    private func isAt(_ text: StaticString) -> Bool {
        text.withUTF8Buffer { text in
            place + text.count <= source.count
                && source[place..<place + text.count].elementsEqual(text)
        }
    }

    private mutating func scan() {
        while !isAtEnd {
            if isAt("//") {
                while !isAtEnd, byte() != UInt8(ascii: "\n") { step() }
            } else if isAt("/*") {
                skipComment()
            } else if byte() == UInt8(ascii: "\"") {
                skipString(hashes: 0)
            } else if byte() == UInt8(ascii: "#") {
                scanHash()
            } else if byte() == UInt8(ascii: "`") {
                step()
            } else if Self.beginsWord(byte()) {
                take(.word, from: place)
            } else if byte() <= UInt8(ascii: " ") || (48...57).contains(byte()) {
                step()
            } else {
                add(.sign, String(decoding: [byte()], as: UTF8.self), at: place)
                step()
            }
        }
    }

    /// Comments nest.
    private mutating func skipComment() {
        var depth = 0
        repeat {
            if isAt("/*") {
                depth += 1
                skip(2)
            } else if isAt("*/") {
                depth -= 1
                skip(2)
            } else {
                skip(1)
            }
        } while depth > 0 && !isAtEnd
    }

    /// Scans a raw string, an extended regular expression, or a directive.
    private mutating func scanHash() {
        var hashes = 0
        while byte(hashes) == UInt8(ascii: "#") { hashes += 1 }
        if byte(hashes) == UInt8(ascii: "\"") {
            skip(hashes)
            skipString(hashes: hashes)
        } else if byte(hashes) == UInt8(ascii: "/") {
            skip(hashes + 1)
            while !isAtEnd, !(byte() == UInt8(ascii: "/") && hasHashes(hashes, after: 1)) { step() }
            skip(hashes + 1)
        } else {
            let start = place
            skip(hashes)
            take(.directive, from: start)
        }
    }

    private func hasHashes(_ count: Int, after ahead: Int) -> Bool {
        (0..<count).allSatisfy { byte(ahead + $0) == UInt8(ascii: "#") }
    }

    /// Skips a string from its opening quote, with its interpolations. An unclosed string ends with
    /// its line.
    private mutating func skipString(hashes: Int) {
        let isLong = isAt("\"\"\"")
        skip(isLong ? 3 : 1)
        while !isAtEnd {
            if isLong ? isAt("\"\"\"") : byte() == UInt8(ascii: "\""),
                hasHashes(hashes, after: isLong ? 3 : 1)
            {
                return skip((isLong ? 3 : 1) + hashes)
            }
            if byte() == UInt8(ascii: "\n"), !isLong { return }
            if byte() == UInt8(ascii: "\\"), hasHashes(hashes, after: 1) {
                skip(1 + hashes)
                if byte() == UInt8(ascii: "(") { skipInterpolation() } else { skip(1) }
            } else {
                step()
            }
        }
    }

    /// Skips an interpolation. Past the limit the parenthesis counts as an ordinary character.
    private mutating func skipInterpolation() {
        guard interpolations < SwiftTokens.maximumInterpolations else { return skip(1) }
        interpolations += 1
        defer { interpolations -= 1 }
        var depth = 0
        repeat {
            switch byte() {
            case UInt8(ascii: "("): depth += 1
            case UInt8(ascii: ")"): depth -= 1
            case UInt8(ascii: "\""):
                skipString(hashes: 0)
                continue
            case UInt8(ascii: "#"):
                var hashes = 0
                while byte(hashes) == UInt8(ascii: "#") { hashes += 1 }
                skip(hashes)
                if byte() == UInt8(ascii: "\"") { skipString(hashes: hashes) }
                continue
            default: break
            }
            skip(1)
        } while depth > 0 && !isAtEnd
    }

    private static func beginsWord(_ byte: UInt8) -> Bool {
        byte >= 0x80 || byte == UInt8(ascii: "_") || byte == UInt8(ascii: "$")
            || (65...90).contains(byte) || (97...122).contains(byte)
    }

    private mutating func take(_ kind: SwiftToken.Kind, from start: Int) {
        while Self.beginsWord(byte()) || (48...57).contains(byte()) { place += 1 }
        add(kind, String(decoding: source[start..<place], as: UTF8.self), at: start)
    }

    private mutating func add(_ kind: SwiftToken.Kind, _ text: String, at start: Int) {
        tokens.append(
            SwiftToken(
                kind: kind, text: text, line: line, column: start - lineStart + 1,
                startsLine: isLineStart))
        isLineStart = false
    }
}
