import ArgumentParser
import WardConsole
import WardFormat
import WardKeys
import WardSystem

/// The source of a recovery code.
struct RecoveryCodeOptions: ParsableArguments {
    @Option(
        name: .customLong("code-file"),
        help: "Read the recovery code from this file; blanks and line ends do not matter.",
        completion: .file())
    var file: String?

    @Option(
        name: .customLong("code-fd"),
        help: "Read the recovery code, one line, from this descriptor."
    )
    var descriptor: Int32?

    func validate() throws {
        if file != nil && descriptor != nil {
            throw ValidationError("--code-file and --code-fd exclude each other")
        }
    }

    /// The number of groups that the user may retype before the command gives up.
    private static let retypings = 5

    /// Reads the code. Asks where no option was given, and then asks again for each mistyped group.
    func read(_ what: String, _ kitPath: String, _ console: Console) throws(CommandFailure)
        -> RecoveryCode
    {
        var text = try SecretInput.read(
            file: file, descriptor: descriptor, option: "--code",
            asking: "Recovery code of \(Text.printable(kitPath)): ", console, .recoveryCode)
        var retyped = 0
        while true {
            do throws(RecoveryCodeError) {
                return try RecoveryCode(text: text)
            } catch {
                guard case .mistyped(let group) = error, file == nil, descriptor == nil,
                    retyped < RecoveryCodeOptions.retypings
                else { throw CommandFailure(what, kitPath, error) }
                retyped += 1
                text = try RecoveryCodeOptions.askAgain(for: group, of: text, what, kitPath)
            }
        }
    }

    private static func askAgain(
        for group: Int, of text: borrowing SecretBytes, _ what: String, _ kitPath: String
    ) throws(CommandFailure) -> SecretBytes {
        do throws(Errno) {
            let terminal = try TerminalPrompt()
            let typed = try SecretInput.ask(
                "There is a typing mistake in group \(group). Group \(group) again: ", terminal)
            if let whole = try RecoveryCode.retyping(group: group, as: typed, in: text) {
                return whole
            }
        } catch {
            throw CommandFailure("cannot read the recovery code from", "the terminal", errno: error)
        }
        throw CommandFailure(what, kitPath, RecoveryCodeError.mistyped(group: group))
    }
}

extension SecretKind {
    static let recoveryCode = SecretKind(
        name: "recovery code", emptyHint: RecoveryCodeError.shape,
        tooLongHint: RecoveryCodeError.shape)
}

extension RecoveryCodeError {
    fileprivate static let shape = "a recovery code is 13 groups of 5 letters and digits"
}

extension CommandFailure {
    /// The error for a recovery code with mistakes.
    init(_ what: String, _ kitPath: String, _ error: RecoveryCodeError) {
        let hint: String
        let why: String
        switch error {
        case .mistyped(let group):
            why = "the recovery code has a typing mistake in group \(group)"
            hint = "compare group \(group); upper or lower case, blanks and hyphens do not matter"
        case .wrongLength(let characters):
            why =
                "the recovery code has \(RecoveryCode.groups * RecoveryCode.groupCharacters) "
                + "letters and digits, \(characters) were given"
            hint = RecoveryCodeError.shape
        case .outOfLockedMemory:
            self.init(
                what, kitPath, why: error.description,
                hint: "raise the limit on locked memory: ulimit -l", status: .temporary)
            return
        }
        self.init(what, kitPath, why: why, hint: hint, status: .badData)
    }
}
