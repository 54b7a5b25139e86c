import ArgumentParser
import Glibc
import WardConsole
import WardControl
import WardFormat
import WardKeys
import WardSystem
import WardVolume

struct EraseCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "erase", abstract: "Make everything in a volume unreadable, for ever.",
        discussion: """
            Destroys the effaceable key, which takes an instant whatever the volume's size. Nothing \
            on this device opens the volume again, nor any copy of it, whatever the passcode. A \
            mount ends. The ciphertext stays where it is and may be removed.

            A recovery kit holds the keys themselves: one made before still opens what is left of \
            the volume, and every copy. Destroy it too.

            Asks twice. It works on a mounted or unmounted, locked, disabled or damaged volume, and \
            can be repeated.

            Of a mounted volume the daemon wants the passcode, which is asked for or given; a wrong \
            one counts as a try. Without it (--no-passcode, or nobody to ask) the volume is locked \
            at once and erased a minute later; the command waits for that. Until then ward erase \
            --cancel, or an unlock, takes it back.

            Examples:
              ward erase ~/.papers
              ward erase ~/.papers --yes-really
              ward erase ~/papers --yes-really --passcode-file /run/keys/papers
              ward erase ~/papers --cancel
              ward erase --uuid 5f0c8b52-6f0e-4c58-9a53-0c7f3d2c9b11 --yes-really
            """)

    @Argument(help: "The volume's directory, or a path in its mount.", completion: .directory)
    var volume: String?
    @Option(
        help: "Erase by the volume's UUID, where its directory is lost or its keybag is damaged.")
    var uuid: String?
    @Flag(help: "Do not ask.") var yesReally = false
    @OptionGroup var passcode: PasscodeOptions
    @Flag(help: "Do not ask for the passcode of a mounted volume: erase it a minute later.")
    var noPasscode = false
    @Flag(help: "Take back what was announced without the passcode.") var cancel = false
    @OptionGroup var options: ReportOptions

    private static let what = "cannot erase"

    func validate() throws {
        if (volume == nil) == (uuid == nil) {
            throw ValidationError("name the volume, or its --uuid")
        }
        if noPasscode && passcode.isGiven {
            throw ValidationError("--no-passcode excludes --passcode-file and --passcode-fd")
        }
        if cancel && (yesReally || noPasscode || passcode.isGiven) {
            throw ValidationError("--cancel takes back, and goes with nothing that erases")
        }
    }

    func run() throws {
        let target = try target()
        let console = options.console
        if cancel { return try takeBack(target, console) }
        if !yesReally { try confirm(target) }
        if let left = try target.erase(passcode: try secret(for: target, console)) {
            console.note(
                "it is locked, and will be erased in \(Text.duration(seconds: left)); until then "
                    + "ward erase --cancel \(Text.shellQuoted(target.path ?? target.uuid)) takes it back"
            )
            try target.waitForTheErase()
        }
        if console.isJSON {
            return console.json(
                .object(present: [
                    ("volume", target.path.map { .string($0) }), ("uuid", .string(target.uuid)),
                    ("erased", .bool(true)),
                ]))
        }
        console.confirm(
            "\(Text.printable(target.name)): "
                + (target.wasErased ? "was erased already" : "erased"))
        console.note(
            "a recovery kit made before still opens what is left of it: destroy the kit as well")
    }

    /// The passcode for the daemon of a mounted volume; nil where none is set, or none can be asked
    /// for.
    private func secret(
        for target: EraseTarget, _ console: Console
    ) throws(CommandFailure) -> SecretBox? {
        guard try target.wantsPasscode(), !noPasscode else { return nil }
        let mayAsk = console.mayAsk && Console.isTerminal(0) && Console.isTerminal(2)
        guard passcode.isGiven || mayAsk else { return nil }
        return SecretBox(
            try passcode.read(asking: "Passcode of \(Text.printable(target.name)): ", console))
    }

    private func takeBack(_ target: EraseTarget, _ console: Console) throws(CommandFailure) {
        let wasAnnounced = try target.cancel()
        if console.isJSON {
            return console.json(
                .object([("uuid", .string(target.uuid)), ("cancelled", .bool(wasAnnounced))]))
        }
        console.confirm(
            "\(Text.printable(target.name)): "
                + (wasAnnounced ? "will not be erased" : "nobody has asked to erase it"))
    }

    private func target() throws -> EraseTarget {
        if let uuid { return try EraseTarget(uuid: uuid, EraseCommand.what) }
        return try EraseTarget(named: volume!, EraseCommand.what)
    }

    /// Asks twice: whether to erase, and the volume's name.
    private func confirm(_ target: EraseTarget) throws {
        let refusal = { (why: String) in
            CommandFailure(
                EraseCommand.what, target.name, why: why,
                hint: "--yes-really erases without asking",
                status: .usage)
        }
        guard options.console.mayAsk else { throw refusal("--no-input forbids asking") }
        let answers: (String?, String?)
        do throws(Errno) {
            let terminal = try TerminalPrompt()
            let place = Text.printable(target.path ?? target.uuid)
            let first = try terminal.readLine(
                "Everything in \(place) will be unreadable, for ever. Go on? [y/N] ")
            guard ["y", "yes"].contains(first?.lowercased()) else {
                throw Errno(rawValue: ECANCELED)
            }
            answers = (
                first,
                try terminal.readLine(
                    "Type the name, \(Text.printable(target.name)), to erase it: ")
            )
        } catch {
            if error == .noSuchAddressOrDevice || error == .noSuchFileOrDirectory {
                throw refusal("there is no terminal to ask on")
            }
            if error.rawValue == ECANCELED {
                throw CommandFailure(
                    EraseCommand.what, target.name, why: "it was not confirmed, nothing changed",
                    status: .usage)
            }
            throw CommandFailure(EraseCommand.what, target.name, errno: error)
        }
        guard answers.1 == target.name else {
            throw CommandFailure(
                EraseCommand.what, target.name, why: "another name was typed, nothing changed",
                status: .usage)
        }
    }
}

/// A volume to erase, and the way to reach its keys.
private struct EraseTarget {
    private enum Way {
        /// The daemon also wipes the keys in memory.
        case mounted(VolumeConnection)
        case unmounted(KeybagStore)
        /// The keybag is erased, damaged or lost; only the key remains.
        case key
    }

    /// The backing directory; nil where only the UUID is known.
    let path: String?
    let uuid: String
    let wasErased: Bool
    private let way: Way
    private let what: String

    /// The name that the user must type.
    var name: String {
        path?.split(separator: "/").last.map(String.init) ?? uuid
    }

    init(named volume: String, _ what: String) throws(CommandFailure) {
        self.what = what
        switch try EraseTarget.find(volume, what) {
        case .mounted(let connection):
            let status = try connection.status()
            (path, uuid, wasErased) = (status.volume, status.uuid, false)
            way = .mounted(connection)
        case .unmounted(let path):
            self.path = path
            do throws(KeybagError) {
                let store = try KeybagStore(
                    volumePath: path, stateRoot: StateDirectory.defaultRoot())
                (uuid, wasErased) = (store.parameters.uuidString, false)
                way = .unmounted(store)
            } catch {
                // A keybag that is not authentic may name another volume. Go on only where that
                // volume has no key left either.
                guard error.code == .erased, let found = KeybagStore.volumeUUID(in: path) else {
                    var failure = CommandFailure(what, path, error)
                    if error.code != .notAVolume {
                        failure.hint =
                            "ward erase --uuid UUID: the name of its directory in "
                            + StateDirectory.defaultRoot()
                    }
                    throw failure
                }
                (uuid, wasErased) = (found, true)
                way = .key
            }
        }
    }

    /// A dead or unreachable daemon must not prevent the erase.
    private static func find(
        _ volume: String, _ what: String
    ) throws(CommandFailure) -> PasscodeTarget {
        do throws(CommandFailure) {
            return try PasscodeTarget.find(volume, what)
        } catch {
            guard let path = try? Path.real(volume), KeybagStore.volumeUUID(in: path) != nil else {
                throw error
            }
            return .unmounted(path)
        }
    }

    init(uuid text: String, _ what: String) throws(CommandFailure) {
        self.what = what
        wasErased = false
        guard let bytes = UUID4.bytes(of: text) else {
            throw CommandFailure(
                what, text, why: "it is not a UUID",
                hint: "ls \(Text.shellQuoted(StateDirectory.defaultRoot()))", status: .usage)
        }
        let uuid = VolumeParameters(uuid: bytes, pageBytes: 4096).uuidString
        let mounted = RuntimeDirectory().mounted().first { $0.uuid == uuid }
        self.uuid = uuid
        path = mounted?.volume
        // As in `find`: an unreachable daemon must not prevent the erase.
        if let mounted,
            let connection = try? VolumeConnection(
                what, path: mounted.mountpoint,
                volume: FoundVolume(mount: mounted.mount, record: mounted))
        {
            way = .mounted(connection)
            return
        }
        way = .key
        let directory = StateDirectory(
            root: StateDirectory.defaultRoot(), volumeUUID: bytes)
        guard access(directory.path, F_OK) == 0 else {
            throw CommandFailure(
                what, text, why: "this device knows no volume of that UUID",
                hint: "ls \(Text.shellQuoted(StateDirectory.defaultRoot()))", status: .noInput)
        }
    }

    /// Whether the daemon erases at once only with the passcode.
    func wantsPasscode() throws(CommandFailure) -> Bool {
        guard case .mounted(let connection) = way else { return false }
        return try connection.status().passcodeSet
    }

    /// Cancels an announced erase. Returns whether there was one.
    func cancel() throws(CommandFailure) -> Bool {
        guard case .mounted(let connection) = way else {
            throw CommandFailure(
                what.replacing("erase", with: "take back the erase of"), path ?? uuid,
                why: "it is not mounted, so nothing is announced",
                hint: "ward status shows what is mounted", status: .unavailable)
        }
        return try connection.call { client throws(ControlError) in try client.cancelErase() }
    }

    /// Whether this device still has the key that an erase destroys.
    private var hasEffaceableKey: Bool {
        guard let bytes = UUID4.bytes(of: uuid) else { return false }
        let directory = StateDirectory(root: StateDirectory.defaultRoot(), volumeUUID: bytes)
        return access(directory.effaceableKeyPath, F_OK) == 0
    }

    /// Waits until the daemon has done the announced erase and its mount is gone.
    func waitForTheErase() throws(CommandFailure) {
        guard case .mounted(let connection) = way else { return }
        do throws(ControlError) {
            while try connection.client.status().eraseInSeconds != nil { usleep(200_000) }
            // The erase runs now, or it was cancelled and the volume is still served.
            try connection.client.setTimeout(.seconds(5))
            try connection.client.waitForEnd()
        } catch {
            if error.code == .timedOut {
                throw CommandFailure(
                    what, path, why: "it was taken back", hint: "ward events shows by whom",
                    status: .temporary)
            }
            guard error.code == .connectionLost || error.code == .system(.brokenPipe) else {
                throw CommandFailure(what, path, error)
            }
        }
        // The mount is gone. It may have ended for another reason, so only the key tells.
        guard hasEffaceableKey else { return }
        throw CommandFailure(
            what, path, why: "its mount ended first: nothing was erased",
            hint: "ward erase \(Text.shellQuoted(path ?? uuid)) erases at once what is not mounted",
            status: .temporary)
    }

    /// Returns nil where the volume is erased, else the seconds until the daemon erases it.
    func erase(passcode: SecretBox?) throws(CommandFailure) -> Double? {
        switch way {
        case .mounted(let connection):
            do throws(ControlError) {
                if let passcode {
                    try connection.client.erase(uuid: uuid, passcode: passcode.secret)
                } else if let left = try connection.client.announceErase(uuid: uuid) {
                    return left
                }
                try connection.client.waitForEnd()
            } catch {
                // The daemon's refusal counts, for example of a wrong passcode.
                if case .volume = error.code { throw CommandFailure(what, path, error) }
                // A daemon that fails must not prevent the erase. Its keys in memory go with its
                // mount.
                try eraseKey()
                throw CommandFailure(what, path, error)
            }
        case .unmounted(let store):
            do throws(KeybagError) {
                try store.erase()
            } catch {
                throw CommandFailure(what, path, error)
            }
            try requireNoDaemon()
        case .key:
            try eraseKey()
            try requireNoDaemon()
        }
        return nil
    }

    /// Throws where a daemon that can't be reached still serves the volume: it has the keys in
    /// memory, so the volume is not erased yet.
    private func requireNoDaemon() throws(CommandFailure) {
        guard let path else { return }
        do throws(Errno) {
            _ = try VolumeHold(path, makesFile: false)
            return
        } catch {
            if error != .wouldBlock { return }
        }
        throw CommandFailure(
            "cannot end the mount of", path,
            why:
                "the key is destroyed, but a daemon that can't be reached from here still has it open",
            hint: "ward unmount --force MOUNTPOINT, as the user who mounted it", status: .temporary)
    }

    private func eraseKey() throws(CommandFailure) {
        do throws(KeybagError) {
            try KeybagStore.erase(
                volumeUUID: UUID4.bytes(of: uuid)!, stateRoot: StateDirectory.defaultRoot())
        } catch {
            throw CommandFailure(what, path ?? uuid, error)
        }
    }
}
