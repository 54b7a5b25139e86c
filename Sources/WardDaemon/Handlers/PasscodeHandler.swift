import WardControl
import WardKeys
import WardSystem

/// `Unlock`, and the calls that set, change and remove the passcode.
///
/// Concurrency: the server's thread; the work is done in the queue of passcodes.
final class PasscodeHandler: Sendable {
    private let store: KeybagStore
    private let keyring: ClassKeyring
    private let keeper: LockKeeper
    private let hub: EventHub
    private let locks: LockHandler
    private let passcodes: PasscodeQueue
    private let failures: FailureReporter
    private let erasing: EraseHandler
    private let trust: TrustHandler
    private let kernelCheck: KernelCheck

    init(
        _ mount: MountParts, locks: LockHandler, passcodes: PasscodeQueue,
        failures: FailureReporter, erasing: EraseHandler, trust: TrustHandler
    ) {
        store = mount.store
        keyring = mount.volume.keyring
        keeper = mount.keeper
        hub = mount.hub
        kernelCheck = mount.kernelCheck
        self.locks = locks
        self.passcodes = passcodes
        self.failures = failures
        self.erasing = erasing
        self.trust = trust
    }

    func unlock(_ call: ControlCall) {
        let arrival = SystemClock.monotonic()
        let locksBefore = locks.count
        passcodes.run(call, ["passcode"]) { [self] in
            guard store.hasPasscode else {
                call.fail(.refused(.noPasscodeSet))
                return
            }
            // Before the passcode, so that a refused call costs no attempt.
            guard kernelKeepsPromise(call) else { return }
            let keys = ClassKeyring(classBPublicKey: store.classBPublicKey)
            guard let passcode = call.passcode("passcode") else { return }
            do throws(KeybagError) {
                try store.openPasscodeSlot(passcode, into: keys)
            } catch {
                failures.answer(call, "unlock", error)
                return
            }
            install(
                keys, andHandle: .unlocked, arrival: arrival,
                refuse: { [self] in
                    if locksBefore == locks.count { return false }
                    keys.evict(.all)
                    call.fail(.busy(reason: "it was locked while the passcode was being tried"))
                    return true
                },
                done: { [self] state in
                    erasing.takeBack("by an unlock")
                    call.reply(.state(state))
                })
        }
    }

    /// Whether the kernel drops pages, so that a lock can close what is opened now. Waits for the
    /// check. Answers the call where it is not so.
    private func kernelKeepsPromise(_ call: ControlCall) -> Bool {
        guard let refusal = kernelCheck.verdict().refusal else { return true }
        call.fail(refusal)
        return false
    }

    func setPasscode(_ call: ControlCall) {
        passcodes.run(call, ["passcode"], changesKeybag: true) { [self] in
            guard kernelKeepsPromise(call),
                let passcode = call.passcode("passcode")
            else { return }
            let hadPasscode = store.hasPasscode
            do throws(KeybagError) {
                try store.setPasscode(passcode)
            } catch {
                // The change may have taken effect, although its last step failed: then locks must
                // not be ignored any more.
                if store.hasPasscode != hadPasscode { keeper.post(.passcodeSet) }
                failures.answer(call, "set the passcode of", error)
                return
            }
            keeper.post(.passcodeSet, done: { _ in call.reply() })
        }
    }

    func changePasscode(_ call: ControlCall) {
        passcodes.run(call, ["current", "passcode"], changesKeybag: true) { [self] in
            guard let current = call.passcode("current"),
                let passcode = call.passcode("passcode")
            else { return }
            let before = store.trustedHosts(at: 0).map(\.name)
            let removed: [String]
            do throws(KeybagError) {
                removed = try store.changePasscode(current, to: passcode)
            } catch {
                // The change may have taken effect, although its last step failed.
                if !before.isEmpty, store.trustedHosts(at: 0).isEmpty {
                    trust.revokeHosts(before, "the passcode was changed") {}
                }
                failures.answer(call, "change the passcode of", error)
                return
            }
            hub.emit(ControlEvent(kind: .passcodeChanged, state: keeper.stateName))
            trust.revokeHosts(removed, "the passcode was changed") {
                call.reply(PasscodeHandler.hostsRemoved(removed))
            }
        }
    }

    func removePasscode(_ call: ControlCall) {
        passcodes.run(call, ["current"], changesKeybag: true) { [self] in
            guard let current = call.passcode("current") else { return }
            let hadPasscode = store.hasPasscode
            let before = store.trustedHosts(at: 0).map(\.name)
            var failure: KeybagError?
            do throws(KeybagError) {
                try store.removePasscode(current)
            } catch {
                failure = error
            }
            if let failure, store.hasPasscode || !hadPasscode {
                failures.answer(call, "remove the passcode of", failure)
                return
            }
            // The passcode is gone, even if the last step of the change failed: no unlock will
            // bring the keys.
            let keys = ClassKeyring(classBPublicKey: store.classBPublicKey)
            do throws(KeybagError) {
                _ = try store.openDeviceSlot(into: keys)
            } catch {
                failures.answer(call, "remove the passcode of", error)
                return
            }
            install(
                keys, andHandle: .passcodeRemoved,
                done: { [self, failure] _ in
                    trust.revokeHosts(before, "the passcode was removed") { [self] in
                        if let failure {
                            failures.answer(call, "remove the passcode of", failure)
                        } else {
                            call.reply(PasscodeHandler.hostsRemoved(before))
                        }
                    }
                })
        }
    }

    private static func hostsRemoved(_ names: [String]) -> JSONValue {
        .object([("hostsRemoved", .array(names.map { .string($0) }))])
    }

    /// Moves keys into the volume's keyring on the lock thread, so that an eviction under way does
    /// not take them.
    private func install(
        _ keys: ClassKeyring, andHandle event: LockStateMachine.Event, arrival: Duration? = nil,
        refuse: (@Sendable () -> Bool)? = nil, done: @escaping @Sendable (String) -> Void
    ) {
        keeper.post(
            event, arrival: arrival, refuse: refuse,
            prepare: { [keyring] in keys.move(to: keyring) },
            done: done)
    }
}
