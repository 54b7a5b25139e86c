import Glibc
import WardConsole
import WardControl
import WardFormat
import WardKeys
import WardSystem

/// Writes the path of a new recovery kit and its code, which is shown once and never stored.
enum RecoveryKitFile {
    /// The absolute path of a file that does not exist yet.
    static func path(_ wanted: String) throws(CommandFailure) -> String {
        let what = "cannot write the recovery kit"
        do throws(Errno) {
            let path = try Path.realParent(wanted)
            if access(path, F_OK) == 0 { throw Errno.fileExists }
            return path
        } catch {
            throw CommandFailure(
                what, wanted, errno: error, hint: "name a new file in a directory that exists",
                status: .cannotCreate)
        }
    }

    /// Prints the code on stdout from locked memory, even when quiet: the user requested it, and it
    /// is shown only once.
    static func write(
        _ kitPath: String?, _ code: borrowing RecoveryCode?
    ) throws(CommandFailure) {
        guard let kitPath else { return }
        try write(
            "recovery kit: \(Text.printable(kitPath))\nrecovery code: ", code,
            "\nKeep the two apart, and the code on paper: it is not shown again. Together they open\n"
                + "every copy of this volume, also after the passcode was changed.\n")
    }

    /// Prints a JSON object on one line, with the code as its last member.
    static func writeJSON(
        _ json: JSONValue, _ code: borrowing RecoveryCode?
    ) throws(CommandFailure) {
        let text = json.text()
        switch code {
        case .some: try write(text.dropLast() + ",\"recoveryCode\":\"", code, "\"}\n")
        case .none: Console.write(text + "\n", to: 1)
        }
    }

    private static func write(
        _ before: some StringProtocol, _ code: borrowing RecoveryCode?, _ after: String
    ) throws(CommandFailure) {
        do throws(Errno) {
            switch code {
            case .some(let code):
                let text = try code.text()
                Console.write(String(before), to: 1)
                try text.withUnsafeBytes { bytes throws(Errno) in
                    try Syscall.writeAll(1, bytes.baseAddress!, bytes.count)
                }
                Console.write(after, to: 1)
            case .none: break
            }
        } catch {
            throw CommandFailure("cannot show the recovery code", errno: error)
        }
    }
}

/// An existing recovery kit.
struct ExistingRecoveryKit {
    /// Absolute path.
    let path: String
    /// The kit's content, not authenticated until the code has opened it.
    let kit: RecoveryKit

    init(_ named: String, _ what: String) throws(CommandFailure) {
        do throws(Errno) {
            path = try Path.real(named)
        } catch {
            throw CommandFailure(
                what, named, errno: error, hint: "name the file of the kit", status: .noInput)
        }
        do throws(KeybagError) {
            kit = try KeybagStore.readRecoveryKit(at: path)
        } catch {
            throw ExistingRecoveryKit.failure(what, path, error)
        }
    }

    var uuid: String { kit.identity.parameters.uuidString }
    /// The time when the kit was made: "2026-11-21 14:03".
    var made: String {
        LocalTime.minute(timespec(tv_sec: time_t(clamping: kit.created), tv_nsec: 0))
    }

    /// Opens the kit with its code, which is read from the options or asked for.
    func open(
        _ options: RecoveryCodeOptions, _ what: String, _ console: Console
    ) throws(CommandFailure) -> RecoveredKeys {
        let code = try options.read(what, path, console)
        do throws(KeybagError) {
            return try KeybagStore.openRecoveryKit(at: path, code: code)
        } catch {
            throw ExistingRecoveryKit.failure(what, path, error)
        }
    }

    private static func failure(
        _ what: String, _ path: String, _ error: KeybagError
    ) -> CommandFailure {
        switch error.code {
        case .damaged:
            CommandFailure(
                what, path, why: error.reason,
                hint: "use another copy of the file, or another kit of the volume", status: .damaged
            )
        case .system(let reason):
            CommandFailure(what, path, errno: reason, status: .noInput)
        default: CommandFailure(what, path, error)
        }
    }

    /// The command that makes a kit for the volume's present format.
    static func newKitHint(_ volume: String) -> String {
        "a new one: ward recovery create \(Text.shellQuoted(volume)) --out FILE"
    }

    /// Tells the daemon of this user's mount to read the list of kits again.
    static func tellDaemon(uuid: String) {
        guard let mounted = RuntimeDirectory().mounted().first(where: { $0.uuid == uuid }) else {
            return
        }
        try? ControlClient(record: mounted).readRecovery()
    }
}
