import ArgumentParser
import WardConsole
import WardControl
import WardKeys
import WardSystem

/// The volume whose passcode is meant. A mounted one is reached through its daemon, another one
/// through its directory.
struct PasscodeTargetArgument: ParsableArguments {
    @Argument(
        help:
            "The mount point or any path in it, or the directory of a volume that is not mounted.",
        completion: .directory)
    var volume: String?

    func find(_ what: String) throws(CommandFailure) -> PasscodeTarget {
        guard let volume else { return .mounted(try VolumeConnection(what, path: nil)) }
        return try PasscodeTarget.find(volume, what)
    }
}

enum PasscodeTarget {
    case mounted(VolumeConnection)
    case unmounted(String)

    /// Finds the volume: mounted where `volume` is a path in a mount or the backing directory of
    /// one.
    static func find(_ volume: String, _ what: String) throws(CommandFailure) -> PasscodeTarget {
        let found: FoundVolume
        do throws(ControlError) {
            found = try RuntimeDirectory().find(volume)
        } catch {
            if case .notInMount = error.code {
                return .unmounted(try VolumeDirectory.path(volume, what))
            }
            throw CommandFailure(what, volume, error)
        }
        return .mounted(try VolumeConnection(what, path: volume, volume: found))
    }

    /// The volume's name in questions.
    func name() throws(CommandFailure) -> String {
        switch self {
        case .mounted(let connection): Text.printable(try connection.status().mountpoint)
        case .unmounted(let path): Text.printable(path)
        }
    }

    func hasPasscode(_ what: String) throws(CommandFailure) -> Bool {
        switch self {
        case .mounted(let connection): try connection.status().passcodeSet
        case .unmounted(let path): try VolumeDirectory.open(path, what).hasPasscode
        }
    }

    /// Runs one of the two closures. Holds the lock of an unmounted volume meanwhile.
    func perform(
        _ what: String,
        mounted: (ControlClient) throws(ControlError) -> Void,
        unmounted: (KeybagStore, String) throws -> Void
    ) throws {
        switch self {
        case .mounted(let connection): try connection.call(mounted)
        case .unmounted(let path):
            let lock = try VolumeDirectory.lock(path, what)
            do {
                try unmounted(try VolumeDirectory.open(path, what), path)
            } catch let error as KeybagError {
                throw CommandFailure(what, path, error)
            }
            // Keeps the hold until here.
            _ = lock.directoryDescriptor
        }
    }
}
