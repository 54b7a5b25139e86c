import WardControl
import WardKeys
import WardSystem

/// The queue `ward-passcode`: passcodes are stretched one after the other.
///
/// Concurrency: any thread.
final class PasscodeQueue: Sendable {
    /// The most unlocks and passcode changes that wait in the queue.
    private static let maximumWaiting = 16

    private let backups: BackupHolds
    private let queue = SerialQueue(
        "ward-passcode", limit: PasscodeQueue.maximumWaiting, starts: .atOnce)

    init(backups: BackupHolds) { self.backups = backups }

    /// Runs `body` in the queue of passcodes, where the call has the secrets that it needs. A
    /// change of the keybag waits, outside of the queue, while a backup is made.
    func run(
        _ call: ControlCall, _ names: [String], changesKeybag: Bool = false,
        _ body: @escaping @Sendable () -> Void
    ) {
        for name in names where call.parameters[name]?.secretValue == nil {
            call.failInvalidParameter(name)
            return
        }
        let add: @Sendable () -> Void = { [self] in
            if !queue.add(body) {
                call.fail(.busy(reason: "too many passcodes are being tried"))
            }
        }
        if changesKeybag { backups.whenFree(add) } else { add() }
    }

    /// Runs `body` after the passcodes that wait.
    func add(_ body: @escaping @Sendable () -> Void) { queue.add(always: true, body) }

    /// Runs `last`, and ends the queue. Passcodes that still wait are not tried.
    func stop(_ last: @escaping @Sendable () -> Void) {
        queue.discardWaiting()
        queue.add(always: true, last)
        queue.end()
    }
}

extension ControlCall {
    /// The passcode in a parameter; nil where there is none that may be tried. Then the call was
    /// answered.
    func passcode(_ name: String) -> Passcode? {
        guard let secret = parameters[name]?.secretValue,
            let bytes = try? secret.bytes.copy()
        else {
            fail(.failed(what: "read the passcode", why: "no memory could be locked for it"))
            return nil
        }
        do throws(PasscodeError) {
            return try Passcode(utf8: bytes)
        } catch {
            fail(.invalidPasscode(reason: error.description))
            return nil
        }
    }
}
