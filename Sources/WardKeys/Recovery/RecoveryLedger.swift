import WardCrypto
import WardFormat
import WardSystem

/// This device's records of a volume's recovery kits.
public struct RecoveryHistory: Equatable, Sendable {
    /// When the last kit was made here, since 1970; nil where none is known.
    public var made: Duration?
    /// When a kit was last opened with its code as a test, since 1970.
    public var verified: Duration?

    public init(made: Duration? = nil, verified: Duration? = nil) {
        self.made = made
        self.verified = verified
    }

    /// The reminder that the user needs.
    public enum Standing: String, Equatable, Sendable {
        /// No kit is known: without the state directory the volume would be lost.
        case none
        /// No kit was made or opened for a year.
        case unverified
        case current
    }

    /// The time after which an unopened kit, or its code, may be lost.
    public static let shelfLife = Duration.seconds(365 * 24 * 3600)

    /// The reminder at `now`, since 1970. Making a kit opens it, so that counts as a test. A time
    /// in the future (from a wrong clock) counts as now.
    public func standing(now: Duration) -> Standing {
        guard let last = [made, verified].compactMap({ $0 }).max() else { return .none }
        return now - last > RecoveryHistory.shelfLife ? .unverified : .current
    }
}

/// The `recovery` file: which kits were made and opened, and when. The device key authenticates it.
///
/// Where it is missing, damaged or forged, no kit is known. It only reminds the user and decides
/// nothing.
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

    /// Notes a kit that was made on another device, and opened here.
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
    /// This device's records of this volume's recovery kits, as last read.
    public var recovery: RecoveryHistory { published.withLock { $0.recovery } }

    /// Reads the records again, after another process made or opened a kit.
    public func reloadRecovery() {
        if let history = try? context.recovery.history() {
            published.withLock { $0.recovery = history }
        }
    }

    /// Reads the records without the keybag; nil where this device has no key for the volume.
    public static func recoveryHistory(
        volumeUUID: [UInt8], stateRoot: String
    ) -> RecoveryHistory? {
        let context = KeybagContext(
            volumePath: "/", stateRoot: stateRoot, uuid: volumeUUID, storage: DiskKeyStorage(),
            clock: .system)
        return try? context.recovery.history()
    }

    /// Notes that a kit was opened with its code. False where this device has no key for the
    /// volume: then no key can authenticate the note.
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
