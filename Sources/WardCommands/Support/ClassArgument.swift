import ArgumentParser
import WardFormat

/// A protection class on the command line: A, B, C, D, CX, or any of its names.
struct ClassArgument: ExpressibleByArgument {
    let value: ProtectionClass

    init(_ value: ProtectionClass) { self.value = value }

    init?(argument: String) {
        guard let value = ProtectionClass(spelling: argument) else { return nil }
        self.value = value
    }

    static let allValueStrings: [String] = ProtectionClass.allCases.map(\.letter)
    static let defaultCompletionKind = CompletionKind.list(
        ProtectionClass.allCases.flatMap { [$0.letter, $0.name] })
    var defaultValueDescription: String { value.letter }

    static let table = """
        Classes: A complete (readable while unlocked), B completeUnlessOpen (open files stay usable, \
        new ones can always be made), C completeUntilFirstUserAuthentication (from the first unlock \
        on), D none (always), CX completeWhenUserInactive (as C, for a time).
        """
}
