import WardCrypto
import WardFormat
import WardSystem

/// The `attempts` file: the passcode policy's memory across processes and power cuts.
///
/// The file exists since the volume was made, and the device key authenticates it. It is replaced
/// atomically after an fsync, so no power cut damages it. Where it is missing, damaged or forged,
/// `PasscodePolicy.forgotten` counts: one try, after the longest delay.
struct AttemptLedger {
    let path: String
    let uuid: [UInt8]
    let storage: any KeyStorage
    let clock: DeviceClock
    let device: any DeviceKeyProvider

    /// The recorded policy; `forgotten` where the file does not count. A delay measured with
    /// another clock begins again. `needsStoring` is true in both cases.
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

    /// Loads the policy, and stores it where that is needed.
    func settled() throws(KeybagError) -> PasscodePolicy {
        let (policy, needsStoring) = try load()
        if needsStoring { try store(policy) }
        return policy
    }

    /// Stores the policy; it is durable on return.
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

    /// Nil where the file is missing, or was not written by this device for this volume.
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
