import WardCrypto
import WardFormat
import WardSystem

/// The `attempts` file: the passcode policy's memory across processes and power cuts.
///
/// It is there from the making of the volume on and authenticated by the device key. One that is
/// missing, damaged or forged is not the work of a power cut (it is replaced atomically, after an
/// fsync), so it counts as `PasscodePolicy.forgotten`: one try, after the longest delay.
struct AttemptLedger {
    let path: String
    let uuid: [UInt8]
    let storage: any KeyStorage
    let clock: DeviceClock
    let device: any DeviceKeyProvider

    /// What is written down; where the file does not count, what counts instead. A delay of another
    /// clock begins again: `needsStoring` then, and where the file was replaced by a guess.
    func load() throws(KeybagError) -> (policy: PasscodePolicy, needsStoring: Bool) {
        guard let record = try authenticRecord() else {
            return (.forgotten(now: clock.now()), true)
        }
        let end = Duration.nanoseconds(Int64(clamping: record.delayEndNanoseconds))
        var policy = PasscodePolicy(
            wrongPasscodes: Int(record.wrongPasscodes), delayEnd: end == .zero ? nil : end)
        policy.wrongTags = record.tags
        if record.lastIsPending { policy.pendingTag = policy.wrongTags.popLast() }
        guard record.clockIdentity != clock.identity, policy.delayEnd != nil else {
            return (policy, false)
        }
        policy.restartOnNewClock(now: clock.now())
        return (policy, true)
    }

    /// The same, with what has to be stored stored.
    func settled() throws(KeybagError) -> PasscodePolicy {
        let (policy, needsStoring) = try load()
        if needsStoring { try store(policy) }
        return policy
    }

    /// Durable when it returns.
    func store(_ policy: PasscodePolicy) throws(KeybagError) {
        let end = (policy.delayEnd ?? .zero).components
        var record = AttemptRecord(
            uuid: uuid, wrongPasscodes: UInt16(clamping: policy.wrongPasscodes),
            clockIdentity: clock.identity,
            delayEndNanoseconds: UInt64(
                clamping: end.seconds &* 1_000_000_000 &+ end.attoseconds / 1_000_000_000))
        record.tags = policy.wrongTags + (policy.pendingTag.map { [$0] } ?? [])
        record.lastIsPending = policy.pendingTag != nil
        record.mac = try mac(of: record).withUnsafeBytes { [UInt8]($0) }
        do throws(Errno) {
            try storage.replace(path, with: record.serialized, isPublic: false)
        } catch {
            throw .system(error, path, "can't write down the passcode attempt")
        }
    }

    /// Nil where the file is missing, or not one that this device wrote for this volume.
    private func authenticRecord() throws(KeybagError) -> AttemptRecord? {
        guard
            let bytes = try storage.readIfThere(
                path, limit: AttemptRecord.bytes, "the passcode attempts")
        else { return nil }
        let record: AttemptRecord
        do throws(FormatError) {
            record = try AttemptRecord(reading: bytes)
        } catch {
            if error.code == .newerVersion { throw .format(error, path) }
            return nil
        }
        guard record.uuid == uuid else { return nil }
        return try mac(of: record) == secret(record.mac) ? record : nil
    }

    private func mac(of record: AttemptRecord) throws(KeybagError) -> SecretBytes {
        try device.entangle(secret(record.authenticated), purpose: "ward attempts v1")
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
