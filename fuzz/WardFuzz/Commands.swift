import ArgumentParser
import FoundationEssentials
import WardConsole
import WardFormat
import WardSystem

@testable import WardBackup
@testable import WardCommands
@testable import WardLint
@testable import WardVolume

/// Text that people type, and the files that commands read.
let commandParsers: [Parser] = [
    /// A command's name, then one argument a line. Only the code that reads and judges the
    /// arguments runs. The root command is left out: it builds all commands each time, which takes
    /// longer than everything else.
    Parser(name: "command-line", maximumBytes: 512) { bytes in
        let words = bytes.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false)
            .map { String(decoding: $0, as: UTF8.self) }
        guard let name = words.first, let command = commands[name] else { return }
        let arguments = Array(words.dropFirst())
        do {
            let parsed = try command.parse(arguments)
            if let set = parsed as? PolicySetCommand { _ = set.policy.change }
            if let make = parsed as? InitCommand { _ = make.policy.change }
            if let adopt = parsed as? AdoptCommand { _ = adopt.policy.change }
        } catch {
            // The text and the exit code of the error.
            _ = command.message(for: error)
            _ = command.exitCode(for: error)
        }
    },
    Parser(name: "arguments", maximumBytes: 128) { bytes in
        let text = String(decoding: bytes, as: UTF8.self)
        if let duration = DurationArgument(argument: text) {
            require((0...1e9).contains(duration.seconds), "a duration of \(duration.seconds) s")
            _ = Duration.seconds(duration.seconds)
            _ = Text.duration(seconds: duration.seconds)
            _ = Text.preciseDuration(seconds: duration.seconds)
        }
        if let value = ClassArgument(argument: text)?.value {
            require(ProtectionClass(spelling: value.letter) == value, "a class changes")
        }
        _ = FindingKind(argument: text)
        requirePrintable(Text.printable(text))
        requirePrintable(Text.printable(bytes))
        requireQuoted(text)
    },
    Parser(name: "class-list") { bytes in
        let path = listPath
        guard FileManager.default.createFile(atPath: path, contents: Data(bytes)) else {
            fatalError("no list of classes can be written")
        }
        let head = (try? ClassList.head(path)) ?? nil
        guard let list = try? ClassList(reading: path) else { return }
        require(head == list.head, "the head of a list changes")
        // As `ward export` writes it.
        var written = list.head.line
        for (path, protectionClass) in list.classes {
            written += ClassList.line(path, protectionClass).bytes + [UInt8(ascii: "\n")]
        }
        guard FileManager.default.createFile(atPath: path, contents: Data(written)),
            let again = try? ClassList(reading: path)
        else { fatalError("a list can't be read again") }
        require(
            again.head == list.head && again.classes == list.classes, "a list of classes changes")
    },
    Parser(name: "ready-message", maximumBytes: 256) { bytes in
        guard let message = ReadyMessage(bytes) else { return }
        let again = ReadyMessage(message.bytes)
        require(again?.bytes == message.bytes, "what the daemon says changes")
    },
    Parser(name: "swift-source", maximumBytes: 8192) { bytes in
        let tokens = SwiftTokens.of(bytes)
        let lines = bytes.count { $0 == UInt8(ascii: "\n") } + 1
        for token in tokens {
            require(
                (1...lines).contains(token.line) && token.column >= 1
                    && token.column <= bytes.count + 1, "a place that is not in the file")
        }
        let (compiled, hidden) = SwiftConditions.split(tokens) { $0.kind == .word }
        require(compiled.count + hidden.count <= tokens.count, "conditions add something")
        _ = LintedFile(source: bytes)
    },
    /// A path, as the programs that make backups need it.
    Parser(name: "backup-lists", maximumBytes: 512) { bytes in
        let names = bytes.split(separator: 0).filter { $0.count <= 255 }.map(Array.init)
        var directory = BackupDirectory(path: names.first ?? [], id: nil, entries: [])
        for (index, name) in names.dropFirst().enumerated() {
            var entry = BackupEntry(name: name, kind: index % 2 == 0 ? .file : .directory)
            entry.exclusion = index % 3 == 0 ? .marked : nil
            directory.entries.append(entry)
        }
        for tool in [nil] + BackupTool.allCases.map(Optional.some) {
            for isExcludes in [false, true] {
                list(directory, tool, isExcludes, separator: UInt8(ascii: "\n"))
                list(directory, tool, isExcludes, separator: 0)
            }
        }
    },
]

private let commands: [String: any ParsableArguments.Type] = [
    "mount": MountCommand.self, "init": InitCommand.self, "adopt": AdoptCommand.self,
    "policy set": PolicySetCommand.self, "advance": AdvanceCommand.self,
    "events": EventsCommand.self, "class set": ClassSetCommand.self, "test": TestCommand.self,
    "backup list": BackupListCommand.self, "container create": ContainerCreateCommand.self,
    "trust connect": TrustConnectCommand.self, "trust add": TrustAddCommand.self,
    "watchdog": WatchdogCommand.self, "holders": HoldersCommand.self,
]

private let listPath = Scratch.directory() + "/" + ClassList.fileName

/// A name must not end a line, because the rest would be another path.
private func list(
    _ directory: BackupDirectory, _ tool: BackupTool?, _ isExcludes: Bool, separator: UInt8
) {
    var list = BackupList(root: "/volume")
    list.tool = tool
    list.isExcludes = isExcludes
    list.separator = separator
    var out: [UInt8] = []
    let unwritable = list.append(directory, to: &out)
    let lines = out.split(separator: separator, omittingEmptySubsequences: false)
    require(lines.last?.isEmpty == true, "a line has no end")
    // At most two lines for a link, and one for the directory itself.
    require(
        lines.count - 1 + unwritable.count <= 2 * directory.entries.count + 1,
        "a path has become several")
}

/// Checks a path for a hint that people paste: the shell must take it as one word.
private func requireQuoted(_ text: String) {
    let quoted = Text.shellQuoted(text)
    guard quoted != text else {
        let isPlain = text.utf8.allSatisfy {
            switch $0 {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), 0x80...0xFF:
                true
            default: "/._-+,:@%=~".utf8.contains($0)
            }
        }
        require(isPlain, "a path is not quoted: \(text)")
        return
    }
}
