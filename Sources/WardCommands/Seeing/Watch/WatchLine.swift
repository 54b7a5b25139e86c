/// A line of the screen, in pieces of text with one tone each.
struct WatchLine: Equatable {
    enum Tone: Equatable {
        case plain, bold, dim, good, warning, bad
        /// The state, visible from a distance.
        case goodBadge, warningBadge, badBadge
    }

    private(set) var pieces: [(text: String, tone: Tone)] = []

    init() {}
    init(_ text: String, _ tone: Tone = .plain) { add(text, tone) }

    mutating func add(_ text: String, _ tone: Tone = .plain) {
        if !text.isEmpty { pieces.append((text, tone)) }
    }

    var width: Int { pieces.reduce(0) { $0 + CellWidth.of($1.text) } }

    /// The text without tones.
    var text: String { pieces.map(\.text).joined() }

    /// Cuts the line to `columns` cells. A cut line ends in `ellipsis`, which is one cell wide.
    func fitted(to columns: Int, ellipsis: String) -> WatchLine {
        guard width > columns else { return self }
        var line = WatchLine()
        var left = columns - 1
        for piece in pieces {
            let text = CellWidth.prefix(piece.text, cells: left)
            line.add(text, piece.tone)
            left -= CellWidth.of(text)
            if text.count < piece.text.count { break }
        }
        if columns > 0 { line.add(ellipsis) }
        return line
    }

    /// The line with `text` at the right edge, if there is room.
    func with(right text: String, columns: Int) -> WatchLine {
        let gap = columns - width - CellWidth.of(text)
        guard gap >= 2 else { return self }
        var line = self
        line.add(String(repeating: " ", count: gap))
        line.add(text, .dim)
        return line
    }

    /// The line for terminals that show only ASCII.
    var inASCII: WatchLine {
        var line = WatchLine()
        for piece in pieces {
            let text = String(piece.text.map { $0.isASCII ? $0 : "?" })
            line.add(text, piece.tone)
        }
        return line
    }

    /// The line in sequences of ECMA-48; without colours only bold and reversed text.
    func rendered(inColour: Bool) -> String {
        pieces.map { piece in
            let code =
                switch piece.tone {
                case .plain: ""
                case .bold: "1"
                case .dim: inColour ? "2" : ""
                case .good: inColour ? "32" : ""
                case .warning: inColour ? "33" : "1"
                case .bad: inColour ? "31" : "1"
                case .goodBadge: inColour ? "1;30;42" : "1;7"
                case .warningBadge: inColour ? "1;30;43" : "1;7"
                case .badBadge: inColour ? "1;37;41" : "1;7"
                }
            return code.isEmpty ? piece.text : "\u{1B}[\(code)m\(piece.text)\u{1B}[0m"
        }.joined()
    }

    static func == (left: WatchLine, right: WatchLine) -> Bool {
        left.pieces.count == right.pieces.count
            && zip(left.pieces, right.pieces).allSatisfy {
                $0.text == $1.text && $0.tone == $1.tone
            }
    }
}

/// The number of terminal cells that text takes: 2 for East Asian scripts and emoji (UAX 11), 0 for
/// combining characters. The function wcwidth(3) depends on the locale and is no better for these.
enum CellWidth {
    static func of(_ text: String) -> Int { text.reduce(0) { $0 + of($1) } }

    static func of(_ character: Character) -> Int {
        guard let first = character.unicodeScalars.first else { return 0 }
        switch first.value {
        case 0..<0x20, 0x7F..<0xA0: return 0
        case 0x300...0x36F, 0x200B...0x200F, 0x2060, 0xFE00...0xFE0F, 0xFEFF: return 0
        case 0x1100...0x115F, 0x2E80...0x303E, 0x3041...0xA4CF, 0xAC00...0xD7A3, 0xF900...0xFAFF,
            0xFE30...0xFE6F, 0xFF00...0xFF60, 0xFFE0...0xFFE6, 0x1F300...0x1FAFF,
            0x20000...0x3FFFD:
            return 2
        default: return 1
        }
    }

    /// The longest prefix that fits into `cells`.
    static func prefix(_ text: String, cells: Int) -> String {
        var left = cells
        return String(
            text.prefix { character in
                left -= of(character)
                return left >= 0
            })
    }
}
