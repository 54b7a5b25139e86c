import WardCrypto
import WardFormat
import WardSystem

/// What this device knows of a volume's recovery kits.
public struct RecoveryHistory: Equatable, Sendable {
    /// When the last kit was made here; nil where none is known.
    public var made: Duration?
    /// When a kit was last opened with its code, to see whether it still can be.
    public var verified: Duration?

    public init(made: Duration? = nil, verified: Duration? = nil) {
        self.made = made
        self.verified = verified
    }

    /// Whether the owner is to be told something.
    public enum Standing: String, Equatable, Sendable {
        /// No kit is known: whoever loses the state directory loses the volume.
        case none
        /// No kit was made or opened for a year.
        case unverified
        case current
    }

    /// After this long a kit that nobody has opened may be lost, or its code.
    public static let shelfLife = Duration.seconds(365 * 24 * 3600)

    /// `now`: since 1970. A kit opens when it is made, so that counts as much. What is in the
    /// future (a clock that was wrong) counts as now.
    public func standing(now: Duration) -> Standing {
        guard let last = [made, verified].compactMap({ $0 }).max() else { return .none }
        return now - last > RecoveryHistory.shelfLife ? .unverified : .current
    }
}

/// The `recovery` file: which kits were made and opened, and when; authenticated by the device key.
///
/// One that is missing, damaged or forged says that no kit is known. It is a reminder for the owner
/// and never decides anything.
struct RecoveryLedger {
    let path: String
    let uuid: [UInt8]
    let storage: any KeyStorage
    let device: any DeviceKeyProvider

    func history() throws(KeybagError) -> RecoveryHistory {
        let record = try load()
        return RecoveryHistory(
            made: record.made.map { .seconds($0.time) },
            verified: record.verified.map { .seconds($0.time) })
    }

    func noteMade(_ kitID: [UInt8], at time: UInt64) throws(KeybagError) {
        var record = try load()
        record.made = RecoveryRecord.Entry(kitID: kitID, time: time)
        try store(record)
    }

    func noteVerified(_ kitID: [UInt8], at time: UInt64) throws(KeybagError) {
        var record = try load()
        record.verified = RecoveryRecord.Entry(kitID: kitID, time: time)
        try store(record)
    }

    /// `made` on another device, and opened here.
    func noteAdopted(_ kitID: [UInt8], made: UInt64, at time: UInt64) throws(KeybagError) {
        var record = RecoveryRecord(uuid: uuid)
        record.made = RecoveryRecord.Entry(kitID: kitID, time: made)
        record.verified = RecoveryRecord.Entry(kitID: kitID, time: time)
        try store(record)
    }

    private func load() throws(KeybagError) -> RecoveryRecord {
        guard
            let bytes = try storage.readIfThere(
                path, limit: RecoveryRecord.bytes, "what is known of recovery kits")
        else { return RecoveryRecord(uuid: uuid) }
        let record: RecoveryRecord
        do throws(FormatError) {
            record = try RecoveryRecord(reading: bytes)
        } catch {
            if error.code == .newerVersion { throw .format(error, path) }
            return RecoveryRecord(uuid: uuid)
        }
        guard record.uuid == uuid, try mac(of: record) == (try secret(record.mac)) else {
            return RecoveryRecord(uuid: uuid)
        }
        return record
    }

    private func store(_ new: RecoveryRecord) throws(KeybagError) {
        var record = new
        record.mac = try mac(of: record).withUnsafeBytes { [UInt8]($0) }
        do throws(Errno) {
            try storage.replace(path, with: record.serialized, isPublic: false)
        } catch {
            throw .system(error, path, "can't write down what is known of recovery kits")
        }
    }

    private func mac(of record: RecoveryRecord) throws(KeybagError) -> SecretBytes {
        try device.entangle(
            try secret(record.authenticated), purpose: "ward recovery kits v1")
    }

    private func secret(_ bytes: [UInt8]) throws(KeybagError) -> SecretBytes {
        do throws(Errno) {
            var secret = try SecretBytes(zeroed: bytes.count)
            secret.withUnsafeMutableBytes { $0.copyBytes(from: bytes) }
            return secret
        } catch {
            throw .noLockedMemory(path)
        }
    }
}

extension KeybagContext {
    var recovery: RecoveryLedger {
        RecoveryLedger(
            path: directory.recoveryPath, uuid: uuid, storage: storage, device: device)
    }

    static var secondsSinceEpoch: UInt64 {
        UInt64(clamping: SystemClock.sinceEpoch().components.seconds)
    }
}

extension KeybagStore {
    /// What this device knows of recovery kits of this volume, as it was read last.
    public var recovery: RecoveryHistory { published.withLock { $0.recovery } }

    /// Reads it again: another process made a kit, or opened one.
    public func reloadRecovery() {
        if let history = try? context.recovery.history() {
            published.withLock { $0.recovery = history }
        }
    }

    /// The same without the keybag; nil where this device has no key for the volume.
    public static func recoveryHistory(
        volumeUUID: [UInt8], stateRoot: String
    ) -> RecoveryHistory? {
        let context = KeybagContext(
            volumePath: "/", stateRoot: stateRoot, uuid: volumeUUID, storage: DiskKeyStorage(),
            clock: .system)
        return try? context.recovery.history()
    }

    /// Writes down that a kit was opened with its code. False where this device has no key for the
    /// volume: then there is nothing to remember it with.
    public static func noteVerified(
        _ keys: borrowing RecoveredKeys, stateRoot: String
    ) throws(KeybagError) -> Bool {
        try noteVerified(keys, stateRoot: stateRoot, DiskKeyStorage())
    }

    static func noteVerified(
        _ keys: borrowing RecoveredKeys, stateRoot: String, _ storage: any KeyStorage
    ) throws(KeybagError) -> Bool {
        let context = KeybagContext(
            volumePath: "/", stateRoot: stateRoot, uuid: keys.parameters.uuid, storage: storage,
            clock: .system)
        let (kitID, now) = (keys.kitID, KeybagContext.secondsSinceEpoch)
        do throws(KeybagError) {
            try context.withLock { () throws(KeybagError) in
                try context.recovery.noteVerified(kitID, at: now)
            }
            return true
        } catch {
            if error.code == .noDeviceKey { return false }
            throw error
        }
    }
}
