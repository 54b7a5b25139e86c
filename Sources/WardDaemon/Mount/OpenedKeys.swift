import WardControl
import WardFormat
import WardKeys
import WardSystem
import WardVolume

/// The keybag, and the keys of the device slot.
struct OpenedKeys: ~Copyable {
    let store: KeybagStore
    let keyring: ClassKeyring
    let volumeKey: SecretBytes
    /// Repairs made on opening.
    let notes: [String]

    /// Opens the volume with these keys.
    func makeVolume(
        _ options: MountOptions, _ placement: Placement, _ hub: EventHub, _ storage: any Storage
    ) throws(DaemonError) -> Volume {
        do throws(VolumeOpenError) {
            return try Volume(
                backingPath: placement.volumePath, parameters: store.parameters,
                volumeKey: volumeKey, keyring: keyring, readOnly: options.readOnly,
                isCopy: options.acceptsOlderGeneration,
                kernelKeepsContent: !options.sharedStorage, observer: hub, storage: storage)
        } catch {
            throw DaemonError(error, volumePath: options.volumePath)
        }
    }

    /// Refuses options that keep protected files open longer than the policy: only the passcode may
    /// change that.
    private static func refuseWeaker(
        _ options: MountOptions, _ store: KeybagStore
    ) throws(DaemonError) {
        if options.manualClock {
            throw DaemonError(
                "mount", options.volumePath,
                "--manual-clock is for volumes of tests only: on this one no grace period would end",
                hint: "mount it without --manual-clock", status: .usage)
        }
        let longest = store.policy.gracePeriod.inSeconds
        if let grace = options.lock.graceSeconds, grace > longest {
            throw DaemonError(
                "mount", options.volumePath,
                "--grace is \(grace) s, and the volume's policy allows \(longest) s at most",
                hint:
                    "ward policy set \(options.volumePath) --grace \(Int(grace.rounded(.up)))s, with the passcode",
                status: .usage)
        }
    }

    /// Refuses options that give a promise up, for other volumes than those of tests. A power cut
    /// must not undo the count of wrong passcodes, or the change to a stronger class (rows L5, I7).
    private static func refuseForUse(_ options: MountOptions) throws(DaemonError) {
        let flags = [
            ("--volatile", options.tests.isVolatile), ("--keep-pages", options.tests.keepsPages),
        ]
        for (word, isGiven) in flags where isGiven {
            throw DaemonError(
                "mount", options.volumePath, "\(word) is for volumes of tests only",
                hint: "mount it without \(word)", status: .usage)
        }
    }

    /// `manualClock` is the clock for delays after wrong passcodes; only a volume for tests has
    /// one.
    static func open(
        _ options: MountOptions, _ placement: Placement, manualClock: DeviceClock?
    ) throws(DaemonError) -> OpenedKeys {
        var store = try openStore(options, placement, .system)
        if !store.isForTests {
            try refuseForUse(options)
            try refuseWeaker(options, store)
        }
        if options.tests.isVolatile { Durability.giveUp() }
        var notes = store.notes
        if let manualClock {
            store = try openStore(options, placement, manualClock)
            notes += store.notes
        }
        let keyring = ClassKeyring(classBPublicKey: store.classBPublicKey)
        let volumeKey = try openDeviceSlot(of: store, into: keyring, options)
        return OpenedKeys(store: store, keyring: keyring, volumeKey: volumeKey, notes: notes)
    }

    private static func openStore(
        _ options: MountOptions, _ placement: Placement, _ clock: DeviceClock
    ) throws(DaemonError) -> KeybagStore {
        do throws(KeybagError) {
            let store = try KeybagStore(
                volumePath: placement.volumePath, stateRoot: placement.stateRoot, clock: clock,
                acceptsOlderGeneration: options.acceptsOlderGeneration)
            // The daemon's start is the boot of semantics.md.
            try store.restartPasscodeDelay()
            return store
        } catch {
            throw DaemonError(error, volumePath: options.volumePath)
        }
    }

    private static func openDeviceSlot(
        of store: KeybagStore, into keyring: ClassKeyring, _ options: MountOptions
    ) throws(DaemonError) -> SecretBytes {
        do throws(KeybagError) {
            return try store.openDeviceSlot(into: keyring)
        } catch {
            throw DaemonError(error, volumePath: options.volumePath)
        }
    }
}
