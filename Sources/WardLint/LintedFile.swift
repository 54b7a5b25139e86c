/// The parts of one Swift file that `ward lint` judges.
struct LintedFile {
    private struct Import {
        var module: String
        /// `import struct Foundation.Data` imports only that declaration.
        var isScoped: Bool
        var line: Int
        var column: Int
    }

    /// Tracks whether the scanner is inside an extension of a type that has the calls.
    private struct Extensions {
        private var depth = 0
        /// Brace depths of the open extension bodies.
        private var bodies: [Int] = []
        private var isAnnounced = false

        var isInside: Bool { !bodies.isEmpty }

        mutating func pass(_ text: String, next: String) {
            switch text {
            case "extension": isAnnounced = LintRules.writers.contains(next)
            case "{":
                depth += 1
                if isAnnounced { bodies.append(depth) }
                isAnnounced = false
            case "}":
                if bodies.last == depth { bodies.removeLast() }
                depth -= 1
            default: break
            }
        }
    }

    private let imports: [Import]
    private let protections: [SwiftToken]
    private let writes: [SwiftToken]
    /// Protection in branches that a build for Linux does not compile.
    private let hidden: [SwiftToken]

    init(source: [UInt8]) {
        let (tokens, hidden) = SwiftConditions.split(SwiftTokens.of(source)) {
            $0.kind == .word
                && (LintedFile.isProtection($0.text)
                    || $0.text.hasPrefix(LintRules.databasePrefix))
        }
        var imports: [Import] = []
        var protections: [SwiftToken] = []
        var writes: [SwiftToken] = []
        var place = 0
        func text(_ index: Int) -> String {
            tokens.indices.contains(index) ? tokens[index].text : ""
        }
        var extensions = Extensions()
        while place < tokens.count {
            let token = tokens[place]
            extensions.pass(token.text, next: text(place + 1))
            if token.kind == .word, token.text == "import", text(place - 1) != "." {
                let isScoped =
                    LintedFile.importKinds.contains(text(place + 1))
                    && !tokens[place + 1].startsLine && text(place + 3) == "."
                let module = place + (isScoped ? 2 : 1)
                imports.append(
                    Import(
                        module: text(module), isScoped: isScoped, line: token.line,
                        column: token.column))
                place = module
            } else if token.kind == .word {
                if LintedFile.isProtection(token.text) {
                    protections.append(token)
                } else if text(place + 1) == "(",
                    text(place - 1) == "." || extensions.isInside && text(place - 1) != "func"
                {
                    // An "inout" argument is the stream of a TextOutputStreamable, and no file.
                    let isLabelled =
                        LintRules.writingWithLabel[token.text]?.contains(text(place + 2)) == true
                        && text(place + 4) != "&"
                    if isLabelled || LintRules.writing.contains(token.text) { writes.append(token) }
                }
            }
            place += 1
        }
        self.imports = imports
        self.protections = protections
        self.writes = writes
        self.hidden = hidden
    }

    private static let importKinds: Set<String> = [
        "typealias", "struct", "class", "enum", "protocol", "let", "var", "func", "actor",
    ]

    private static func isProtection(_ word: String) -> Bool {
        LintRules.protection.contains(word)
            || LintRules.protectionPrefixes.contains { word.hasPrefix($0) }
    }

    /// Whether the file imports the library.
    var isAdopting: Bool {
        imports.contains {
            $0.module == LintRules.library || $0.module == LintRules.libraryForXCTest
        }
    }

    private func imports(_ module: String) -> Bool {
        imports.contains { !$0.isScoped && $0.module == module }
    }

    /// Findings in the order of the file. `inAdoptingTarget`: other files of the target import the
    /// library.
    func findings(inAdoptingTarget: Bool) -> [LintFinding] {
        var found = hidden.map {
            LintFinding(rule: .notCompiled, name: $0.text, line: $0.line, column: $0.column)
        }
        if isAdopting {
            found += imports.filter { !$0.isScoped && LintRules.ambiguous.contains($0.module) }
                .map {
                    LintFinding(
                        rule: .ambiguousImport, name: $0.module, line: $0.line, column: $0.column)
                }
        } else {
            let isInTests = imports("XCTest") && !imports("Foundation")
            let written = inAdoptingTarget ? writes : []
            found +=
                (protections.map { ($0, LintFinding.Rule.unprotected) }
                + written.map { ($0, .plainWrite) })
                .map { token, rule in
                    LintFinding(
                        rule: rule, name: token.text, line: token.line, column: token.column,
                        isInTests: isInTests)
                }
        }
        return found.sorted { ($0.line, $0.column) < ($1.line, $1.column) }
    }
}
