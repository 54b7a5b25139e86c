import Synchronization
import WardCrypto
import WardFormat
import WardSystem

/// The keybag of one volume on disk, both copies, with everything that opens or changes it: the
/// front door to keys.
///
/// Concurrency: any thread. Operations wait for each other (`operations`), about 250 ms where a
/// passcode is involved; properties never wait for those (`published`). While files change, a lock
/// in the state directory keeps other processes out.
public final class KeybagStore: Sendable {
    /// The parts that other threads may read during an operation.
    struct Published {
        var keybag: Keybag
        /// The policy that counts.
        var policy: KeybagPolicy
        /// Whether the keybag's policy was not set with the passcode.
        var isPolicyForged = false
        var attempts: PasscodePolicy
        var recovery: RecoveryHistory
    }

    let context: KeybagContext
    let published: Mutex<Published>
    /// Called when a forged policy shows.
    let forgedPolicyListener = Mutex<(@Sendable (KeybagPolicy) -> Void)?>(nil)
    /// Held for the whole of an operation.
    let operations = Mutex(())
    /// The trusted hosts. Values only; the mutex is never held during a wait.
    let hosts: Mutex<TrustedHostList>
    /// Held while the hosts' file changes; taken after `operations`, before the device's lock.
    let hostChanges = Mutex(())
    /// The faults that opening found and repaired: one line each, for the log.
    public let notes: [String]

    /// Opens the keybag in the directory `volumePath`, or its copy where `ward.keybag` can't be
    /// used. Finishes a change that a power cut interrupted.
    ///
    /// `stateRoot` is that of `StateDirectory`. `acceptsOlderGeneration` says that the volume was
    /// restored from a backup on purpose. Throws `KeybagError`: `notAVolume`, `damaged`,
    /// `newerVersion`, `noDeviceKey`, `erased`, `replayed`, `system`.
    public convenience init(
        volumePath: String, stateRoot: String, clock: DeviceClock = .system,
        acceptsOlderGeneration: Bool = false
    ) throws(KeybagError) {
        try self.init(
            volumePath: volumePath, stateRoot: stateRoot, clock: clock,
            acceptsOlderGeneration: acceptsOlderGeneration, storage: DiskKeyStorage())
    }

    init(
        volumePath: String, stateRoot: String, clock: DeviceClock = .system,
        acceptsOlderGeneration: Bool = false, storage: any KeyStorage
    ) throws(KeybagError) {
        let loaded = try KeybagLoader(
            volumePath: volumePath, stateRoot: stateRoot, storage: storage, clock: clock,
            acceptsOlderGeneration: acceptsOlderGeneration
        ).load()
        context = loaded.context
        let (attempts, found) = try loaded.context.withLock { () throws(KeybagError) in
            (try KeybagStore.attempts(loaded), TrustedHostList.load(loaded))
        }
        published = Mutex(
            Published(
                keybag: loaded.keybag, policy: loaded.policy, attempts: attempts,
                recovery: (try? loaded.context.recovery.history()) ?? RecoveryHistory()))
        hosts = Mutex(found.list)
        notes = loaded.notes + found.notes
    }

    /// The recorded attempts. Finishes an erase that a power cut interrupted.
    private static func attempts(
        _ loaded: KeybagLoader.Loaded
    ) throws(KeybagError) -> PasscodePolicy {
        let (attempts, needsStoring) = try loaded.context.ledger.load()
        // A failure to store (a read-only state directory) does no harm: there no passcode will be
        // judged either.
        if needsStoring, loaded.keybag.passcodeSlot != nil {
            try? loaded.context.ledger.store(attempts)
        }
        if attempts.isExhausted, loaded.policy.erasesAfterTenWrongPasscodes,
            loaded.keybag.passcodeSlot != nil
        {
            try loaded.context.erase()
            throw .erasedAfterTen(loaded.context.volumePath)
        }
        return attempts
    }

    // MARK: What is known without a passcode

    public var volumePath: String { context.volumePath }
    public var stateDirectory: StateDirectory { context.directory }
    var identity: KeybagIdentity { published.withLock { $0.keybag.identity } }
    public var parameters: VolumeParameters {
        var parameters = identity.parameters
        parameters.leastFormat = format
        return parameters
    }
    /// The public half of the class B pair, 32 bytes.
    public var classBPublicKey: [UInt8] { identity.classBPublicKey }
    public var hasPasscode: Bool { published.withLock { $0.keybag.passcodeSlot != nil } }
    /// Counts up by one with every rewriting of the keybag.
    public var generation: UInt64 { published.withLock { $0.keybag.generation } }
    /// Grace period, CX period, erase flag. Where `isPolicyForged`, the stronger of the keybag's
    /// and of the usual ones.
    public var policy: KeybagPolicy { published.withLock { $0.policy } }
    /// Whether the policy was changed without the passcode, with the device's files alone. Known
    /// from the first right passcode on, and only of format 2. False again after a change of the
    /// policy or of the passcode.
    public var isPolicyForged: Bool { published.withLock { $0.isPolicyForged } }
    /// The volume's format, as the keybag says it. A right passcode proves it.
    public var format: VolumeFormat { published.withLock { $0.keybag.format } }
    /// The number of wrong passcodes so far, and the delay that runs.
    public var attempts: PasscodePolicy { published.withLock { $0.attempts } }
    /// Whether a passcode may be tried now, by the clock of the delays.
    public var verdict: PasscodePolicy.Verdict { attempts.verdict(now: context.clock.now()) }
    /// Whether the passcode costs less than any real one. Only such a volume may measure its delays
    /// with a clock that a test moves.
    public var isForTests: Bool {
        currentCost.n < ScryptCost.leastRealN
    }

    /// The cost of the passcode; without one, of the last passcode, or of the one that was planned.
    private var currentCost: Scrypt.Parameters {
        let (keybag, policy) = published.withLock { ($0.keybag, $0.policy) }
        return keybag.passcodeSlot?.derivation?.cost ?? policy.passcodeCost
    }

    /// The cost of a new passcode: calibrated anew. A volume for tests stays cheap.
    ///
    /// The cost of a passcode that was judged right before is authentic. The policy is not: the
    /// device's keys alone seal it.
    var costOfNextPasscode: Scrypt.Parameters {
        isForTests ? currentCost : ScryptCost.calibrated.parameters()
    }

    /// Whether the effaceable key is gone, by an erase of this process or another one.
    public var isErased: Bool {
        do throws(KeybagError) {
            _ = try context.effaceable.key(0)
        } catch {
            return error.code == .erased
        }
        return false
    }

    // MARK: Opening

    /// Opens the device slot: installs class D (without a passcode: all classes) into the keyring.
    /// Returns the 32-byte volume key.
    public func openDeviceSlot(into keyring: ClassKeyring) throws(KeybagError) -> SecretBytes {
        let set = try deviceSet()
        try KeybagContext.install(set, into: keyring, path: context.keybagPath)
        return try context.volumeKey(of: set)
    }

    /// All keys of the device slot. Without a passcode this judges the policy, too.
    func deviceSet() throws(KeybagError) -> KeybagKeySet {
        let keybag = published.withLock { $0.keybag }
        let effaceable = try currentEffaceable(of: keybag)
        let secret = try context.hierarchy.deviceSecret(effaceable: effaceable)
        let kek = try context.hierarchy.deviceKEK(secret)
        guard
            let set = try context.open(keybag.deviceSlot, of: keybag, kek: kek)
        else {
            throw KeybagError(
                .damaged, path: context.keybagPath, "the device slot does not authenticate")
        }
        let wanted: KeybagKeySet.Contents =
            keybag.passcodeSlot == nil
            ? [.volumeKey, .classD, .passcodeClasses] : [.volumeKey, .classD]
        guard set.contains(wanted) else {
            throw KeybagError(.damaged, path: context.keybagPath, "the device slot is incomplete")
        }
        if keybag.passcodeSlot == nil {
            try judgePolicy(of: keybag, set, policyKey: try context.hierarchy.policyKey(secret))
        }
        return set
    }

    /// The effaceable key that `keybag` was sealed with; where there are two, the one that opens
    /// it.
    func currentEffaceable(of keybag: Keybag) throws(KeybagError) -> SecretBytes {
        try KeybagStore.effaceable(of: keybag, context)
    }

    static func effaceable(
        of keybag: Keybag, _ context: KeybagContext
    ) throws(KeybagError) -> SecretBytes {
        for index in 0..<KeyFile.maximumKeys {
            guard let key = try context.effaceable.key(index) else { break }
            let secret = try context.hierarchy.deviceSecret(effaceable: key)
            let policyKey = try context.hierarchy.policyKey(secret)
            if try context.policy(of: keybag, policyKey: policyKey) != nil { return key }
        }
        throw KeybagError(
            .changedElsewhere, path: context.keybagPath,
            "the passcode was changed by another process meanwhile")
    }

    // MARK: Erasing

    /// Destroys the effaceable key: no secret of this device opens the volume again; the time does
    /// not depend on its size (L9). Does not wait for a passcode being stretched; a passcode change
    /// being written is finished first.
    ///
    /// A recovery kit still opens the erased volume: it holds the keys themselves. After a power
    /// cut the volume is unchanged or erased, and erasing can be repeated.
    public func erase() throws(KeybagError) {
        try context.withLock { () throws(KeybagError) in try context.erase() }
        hosts.withLock { $0 = TrustedHostList() }
    }

    /// The UUID in the keybag of this directory, or in its copy, authentic or not; nil where
    /// neither can be read.
    public static func volumeUUID(in volumePath: String) -> String? {
        for name in [Keybag.fileName, Keybag.copyFileName] {
            let path = KeybagContext.path(volumePath, name)
            if let bytes = try? DiskKeyStorage().readBytes(path, limit: Keybag.maximumBytes),
                let keybag = try? Keybag(reading: bytes)
            {
                return keybag.identity.parameters.uuidString
            }
        }
        return nil
    }

    /// Erases a volume whose keybag is damaged or gone.
    public static func erase(volumeUUID: [UInt8], stateRoot: String) throws(KeybagError) {
        let context = KeybagContext(
            volumePath: "/", stateRoot: stateRoot, uuid: volumeUUID, storage: DiskKeyStorage(),
            clock: .system)
        try context.withLock { () throws(KeybagError) in try context.erase() }
    }
}
