/// What an `#if` says of a build for Linux with the module DataProtection at hand; nil where that
/// is not known.
///
/// "The Swift Programming Language", "Conditional Compilation Block".
enum SwiftConditions {
    /// Splits the tokens of a file, directives and their conditions left out.
    ///
    /// - Parameter isWanted: The tokens that should not be hidden.
    /// - Returns: `compiled`: those that a build for Linux sees. `hidden`: the wanted ones of
    ///   branches that it does not see, where no other branch of the same `#if` has one that it
    ///   does.
    static func split(
        _ tokens: [SwiftToken], isWanted: (SwiftToken) -> Bool
    ) -> (compiled: [SwiftToken], hidden: [SwiftToken]) {
        struct Block {
            /// What surrounds it is compiled.
            var isOuterActive: Bool
            /// One of its branches certainly was.
            var isDecided: Bool
            /// Where what is compiled of it begins.
            var start: Int
            /// The tokens that are wanted and not compiled, with what lies in blocks within.
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

    /// A recursive descent over `||`, `&&`, `!`, parentheses and the platform conditions, with
    /// three values.
    private struct Condition {
        var tokens: ArraySlice<SwiftToken>
        /// Of negations and parentheses; what nobody writes is not known.
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
