import Glibc
import WardCrypto
import WardFormat
import WardSystem

extension KeybagStore {
    /// How often to wait for another process's change of the keybag, and how long each time,
    /// microseconds.
    private static let patience = (attempts: 20, pause: useconds_t(10_000))

    /// The volume key alone, for names and attributes: from the device slot, in any lock state.
    ///
    /// For reading a volume that may be mounted: takes no lock, repairs nothing and writes nothing.
    /// Also takes an older keybag, because the volume key is the same in all. Throws the errors of
    /// opening.
    public static func volumeKey(
        volumePath: String, stateRoot: String
    ) throws(KeybagError) -> SecretBytes {
        try volumeKey(volumePath: volumePath, stateRoot: stateRoot, storage: DiskKeyStorage())
    }

    static func volumeKey(
        volumePath: String, stateRoot: String, storage: any KeyStorage
    ) throws(KeybagError) -> SecretBytes {
        let loader = KeybagLoader(
            volumePath: volumePath, stateRoot: stateRoot, storage: storage, clock: .system,
            acceptsOlderGeneration: true)
        var attempt = 0
        while true {
            do throws(KeybagError) {
                return try volumeKey(loader)
            } catch {
                attempt += 1
                // During a change it may be that no keybag opens, or that the old effaceable key is
                // half wiped.
                guard attempt < patience.attempts, isPassing(error) else { throw error }
                usleep(patience.pause)
            }
        }
    }

    private static func isPassing(_ error: KeybagError) -> Bool {
        switch error.code {
        case .changedElsewhere, .damaged, .erased: true
        default: false
        }
    }

    private static func volumeKey(_ loader: KeybagLoader) throws(KeybagError) -> SecretBytes {
        let (keybag, context, index) = try loader.peek()
        guard let effaceable = try context.effaceable.key(index) else {
            throw KeybagError(
                .changedElsewhere, path: context.keybagPath, "it is being changed")
        }
        let secret = try context.hierarchy.deviceSecret(effaceable: effaceable)
        let kek = try context.hierarchy.deviceKEK(secret)
        guard
            let set = try context.open(keybag.deviceSlot, of: keybag, kek: kek)
        else {
            throw KeybagError(
                .changedElsewhere, path: context.keybagPath,
                "the device slot does not authenticate")
        }
        return try context.volumeKey(of: set)
    }
}
