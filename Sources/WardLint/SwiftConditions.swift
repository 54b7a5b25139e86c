/// Evaluates `#if` for a build on Linux with the module DataProtection. A condition that can't be
/// known is nil.
///
/// "The Swift Programming Language", "Conditional Compilation Block".
enum SwiftConditions {
    /// Splits the tokens of a file; leaves out directives and their conditions.
    ///
    /// - Parameter isWanted: Chooses the tokens that should not be hidden.
    /// - Returns: The `compiled` tokens are those that a build for Linux sees. The `hidden` tokens
    ///   are wanted ones in other branches, unless a compiled branch of the same `#if` has one too.
    static func split(
        _ tokens: [SwiftToken], isWanted: (SwiftToken) -> Bool
    ) -> (compiled: [SwiftToken], hidden: [SwiftToken]) {
        struct Block {
            /// Whether the code around the block is compiled.
            var isOuterActive: Bool
            /// Whether one of its branches certainly was compiled.
            var isDecided: Bool
            /// The index of the block's first compiled token.
            var start: Int
            /// Wanted tokens that are not compiled, including those of inner blocks.
            var hidden: [SwiftToken] = []
        }
        var blocks: [Block] = []
        var isActive = true
        var kept: [SwiftToken] = []
        var hidden: [SwiftToken] = []
        func close(_ block: Block) {
            if !block.hidden.isEmpty, !kept[block.start...].contains(where: isWanted) {
                hidden += block.hidden
            }
        }
        var place = 0
        while place < tokens.count {
            let token = tokens[place]
            place += 1
            guard token.kind == .directive,
                ["#if", "#elseif", "#else", "#endif"].contains(token.text)
            else {
                if token.kind == .directive { continue }
                if isActive {
                    kept.append(token)
                } else if isWanted(token),
                    let outermost = blocks.lastIndex(where: \.isOuterActive)
                {
                    blocks[outermost].hidden.append(token)
                }
                continue
            }
            if token.text == "#if" {
                blocks.append(
                    Block(isOuterActive: isActive, isDecided: false, start: kept.count))
            }
            guard let block = blocks.last else { continue }
            switch token.text {
            case "#endif":
                close(blocks.removeLast())
                isActive = block.isOuterActive
            case "#else":
                isActive = block.isOuterActive && !block.isDecided
            default:
                let start = place
                while place < tokens.count, !tokens[place].startsLine { place += 1 }
                var condition = Condition(tokens: tokens[start..<place])
                let value = block.isDecided ? false : condition.value()
                isActive = block.isOuterActive && value != false
                if value == true { blocks[blocks.count - 1].isDecided = true }
            }
        }
        blocks.forEach(close)
        return (kept, hidden)
    }

    /// A recursive-descent parser for `||`, `&&`, `!`, parentheses and platform conditions, with
    /// three truth values.
    private struct Condition {
        var tokens: ArraySlice<SwiftToken>
        /// Nesting of negations and parentheses; deeper conditions count as unknown.
        private var depth = 0
        private static let maximumDepth = 64

        init(tokens: ArraySlice<SwiftToken>) { self.tokens = tokens }

        mutating func value() -> Bool? {
            var value = conjunction()
            while take("|", "|") {
                let right = conjunction()
                value =
                    value == true || right == true
                    ? true : value == nil || right == nil ? nil : false
            }
            return value
        }

        private mutating func conjunction() -> Bool? {
            var value = negation()
            while take("&", "&") {
                let right = negation()
                value =
                    value == false || right == false
                    ? false : value == nil || right == nil ? nil : true
            }
            return value
        }

        private mutating func negation() -> Bool? {
            guard depth < Condition.maximumDepth else {
                tokens = []
                return nil
            }
            depth += 1
            defer { depth -= 1 }
            if take("!") { return negation().map { !$0 } }
            if take("(") {
                let inner = value()
                _ = take(")")
                return inner
            }
            guard let word = tokens.popFirst() else { return nil }
            guard take("(") else {
                return word.text == "true" ? true : word.text == "false" ? false : nil
            }
            var arguments: [String] = []
            var depth = 1
            while depth > 0, let token = tokens.popFirst() {
                if token.text == "(" { depth += 1 }
                if token.text == ")" { depth -= 1 }
                if depth > 0 { arguments.append(token.text) }
            }
            return Condition.platform(word.text, arguments.first ?? "")
        }

        private static func platform(_ name: String, _ argument: String) -> Bool? {
            switch name {
            case "os": argument == "Linux"
            case "targetEnvironment": false
            case "canImport":
                if LintRules.modulesOfLinux.contains(argument) {
                    true
                } else {
                    LintRules.modulesOfApple.contains(argument) ? false : nil
                }
            default: nil
            }
        }

        private mutating func take(_ signs: String...) -> Bool {
            guard tokens.prefix(signs.count).map(\.text) == signs else { return false }
            tokens.removeFirst(signs.count)
            return true
        }
    }
}
