import WardFormat
import WardSystem

/// The `attempts` file: the passcode policy's memory across processes and power cuts.
struct AttemptLedger {
    let path: String
    let uuid: [UInt8]
    let storage: any KeyStorage
    let clock: DeviceClock

    /// What is written down. No file, or a damaged one, counts as no wrong passcodes: whoever can change it holds the
    /// device key as well, and a power cut can't damage it. A delay of another clock begins again, and that is stored.
    func load() throws(KeybagError) -> PasscodePolicy {
        let bytes: [UInt8]
        do throws(Errno) {
            bytes = try storage.readBytes(path, limit: AttemptRecord.bytes)
        } catch {
            if error == .noSuchFileOrDirectory { return PasscodePolicy() }
            throw .system(error, path, "can't read the passcode attempts")
        }
        let record: AttemptRecord
        do throws(FormatError) {
            record = try AttemptRecord(reading: bytes)
        } catch {
            if error.code == .newerVersion { throw .format(error, path) }
            return PasscodePolicy()
        }
        guard record.uuid == uuid else { return PasscodePolicy() }
        let end = Duration.nanoseconds(Int64(clamping: record.delayEndNanoseconds))
        var policy = PasscodePolicy(
            wrongPasscodes: Int(record.wrongPasscodes), delayEnd: end == .zero ? nil : end)
        if record.clockIdentity != clock.identity, policy.delayEnd != nil {
            policy.restartOnNewClock(now: clock.now())
            try store(policy)
        }
        return policy
    }

    /// Durable when it returns.
    func store(_ policy: PasscodePolicy) throws(KeybagError) {
        let end = (policy.delayEnd ?? .zero).components
        let record = AttemptRecord(
            uuid: uuid, wrongPasscodes: UInt16(clamping: policy.wrongPasscodes),
            clockIdentity: clock.identity,
            delayEndNanoseconds: UInt64(
                clamping: end.seconds &* 1_000_000_000 &+ end.attoseconds / 1_000_000_000))
        do throws(Errno) {
            try storage.replace(path, with: record.serialized, isPublic: false)
        } catch {
            throw .system(error, path, "can't write down the passcode attempt")
        }
    }
}
