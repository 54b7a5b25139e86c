import ArgumentParser
import WardConsole
import WardSystem

/// The source of a passcode: a file, a descriptor, or a question on the terminal. Arguments and the
/// environment are not accepted, because other users or programs can read them.
struct PasscodeOptions: ParsableArguments {
    @Option(
        name: .customLong("passcode-file"),
        help: "Read the passcode from this file; one newline at its end is dropped.",
        completion: .file())
    var file: String?

    @Option(
        name: .customLong("passcode-fd"), help: "Read the passcode, one line, from this descriptor."
    )
    var descriptor: Int32?

    func validate() throws {
        if file != nil && descriptor != nil {
            throw ValidationError("--passcode-file and --passcode-fd exclude each other")
        }
    }

    var isGiven: Bool { file != nil || descriptor != nil }

    /// Reads the passcode; asks `question` where no option was given.
    func read(asking question: String, _ console: Console) throws(CommandFailure) -> SecretBytes {
        try SecretInput.read(
            file: file, descriptor: descriptor, option: "--passcode", asking: question, console)
    }

    /// Reads a new passcode; a question is asked twice.
    func readNew(asking question: String, _ console: Console) throws(CommandFailure) -> SecretBytes
    {
        try SecretInput.readNew(
            file: file, descriptor: descriptor, option: "--passcode", asking: question, console)
    }
}

/// The source of the new passcode in `passcode change`.
struct NewPasscodeOptions: ParsableArguments {
    @Option(
        name: .customLong("new-passcode-file"),
        help: "Read the new passcode from this file; one newline at its end is dropped.",
        completion: .file())
    var file: String?

    @Option(
        name: .customLong("new-passcode-fd"),
        help: "Read the new passcode, one line, from this descriptor.")
    var descriptor: Int32?

    func validate() throws {
        if file != nil && descriptor != nil {
            throw ValidationError("--new-passcode-file and --new-passcode-fd exclude each other")
        }
    }

    func readNew(asking question: String, _ console: Console) throws(CommandFailure) -> SecretBytes
    {
        try SecretInput.readNew(
            file: file, descriptor: descriptor, option: "--new-passcode", asking: question, console)
    }
}
