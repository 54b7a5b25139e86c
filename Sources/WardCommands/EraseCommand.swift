import ArgumentParser
import Glibc
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

            Examples:
              ward erase ~/.papers
              ward erase ~/.papers --yes-really
              ward erase --uuid 5f0c8b52-6f0e-4c58-9a53-0c7f3d2c9b11 --yes-really
            """)

    @Argument(help: "The volume's directory, or a path in its mount.", completion: .directory)
    var volume: String?
    @Option(
        help: "Erase by the volume's UUID, where its directory is lost or its keybag is damaged.")
    var uuid: String?
    @Flag(help: "Do not ask.") var yesReally = false
    @OptionGroup var options: ReportOptions

    private static let what = "cannot erase"

    func validate() throws {
        if (volume == nil) == (uuid == nil) {
            throw ValidationError("name the volume, or its --uuid")
        }
    }

    func run() throws {
        let target = try target()
        if !yesReally { try confirm(target) }
        try target.erase()
        let console = options.console
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

    private func target() throws -> EraseTarget {
        if let uuid { return try EraseTarget(uuid: uuid, EraseCommand.what) }
        return try EraseTarget(named: volume!, EraseCommand.what)
    }

    /// Twice: whether, and which.
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

/// One volume that is to be erased, by whatever way there is to it.
private struct EraseTarget {
    private enum Way {
        /// Its daemon also wipes the keys in memory.
        case mounted(VolumeConnection)
        case unmounted(KeybagStore)
        /// Without its keybag: erased before, damaged, or lost.
        case key
    }

    /// The backing directory; nil where only the UUID is known.
    let path: String?
    let uuid: String
    let wasErased: Bool
    private let way: Way
    private let what: String

    /// What is to be typed.
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
                // A keybag that is not authentic may name another volume: only where that has no key left either.
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

    /// A daemon that is dead or does not let us in is no reason not to erase.
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
        // As above: a daemon that can't be asked is no reason not to erase.
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

    func erase() throws(CommandFailure) {
        switch way {
        case .mounted(let connection):
            do throws(ControlError) {
                try connection.client.erase(uuid: uuid)
                try connection.client.waitForEnd()
            } catch {
                // A daemon that does not do it can't keep it from being done; what it has in memory goes with its mount.
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
    }

    /// A daemon that can't be found from here keeps its keys until its mount ends: that must not pass for erased.
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
