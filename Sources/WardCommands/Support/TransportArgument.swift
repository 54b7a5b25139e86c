import ArgumentParser
import Glibc
import WardConsole
import WardDaemon

extension TransportChoice: ExpressibleByArgument {
    static let variable = "WARD_TRANSPORT"

    /// The value of `WARD_TRANSPORT`; `auto` where it is not set.
    static func fromEnvironment() throws(CommandFailure) -> TransportChoice {
        guard let value = getenv(variable), value.pointee != 0 else { return .auto }
        let word = String(cString: value)
        guard let choice = TransportChoice(rawValue: word) else {
            let words = allCases.map(\.rawValue).joined(separator: ", ")
            throw CommandFailure(
                "cannot use", word, why: "$\(variable) is to be one of \(words)",
                hint: "unset \(variable)", status: .usage)
        }
        return choice
    }
}

extension RulesLeftOut: ExpressibleByArgument {
    public init?(argument: String) { self.init(words: argument) }

    public var defaultValueDescription: String { words }
}
