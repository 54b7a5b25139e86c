import Synchronization
import Testing
import WardCrypto
import WardFormat
import WardSystem

@testable import WardKeys

/// In format 2 the policy has an authenticator under a key that only the passcode opens. The
/// attacker has the device's files and the keybag, and no passcode.
@Suite("A policy that was set without the passcode")
struct ForgedPolicyTests {
    private let usual = KeybagPolicy(passcodeCost: ScryptCost.test.parameters())

    /// A volume of format 2 whose policy keeps everything open as long as the code allows.
    private func forged(passcode: String? = "1234") throws -> SimulatedVolume {
        let volume = try SimulatedVolume(passcode: passcode, format: .version2)
        try volume.forgePolicy {
            $0.gracePeriod = .seconds(3600)
            $0.userInactivePeriod = .seconds(30 * 86400)
        }
        return volume
    }

    @Test("it counts until the first unlock; then the stronger values hold")
    func attack() throws {
        let volume = try forged()
        for _ in 0..<2 {
            let store = try volume.open()
            #expect(store.generation == 1 && store.format == .version2)
            #expect(store.policy.gracePeriod == .seconds(3600) && !store.isPolicyForged)
            #expect(try store.failure(opening: "1235") == .wrongPasscode(triesLeft: 9))
            #expect(!store.isPolicyForged, "a wrong passcode proves nothing")
            #expect(try store.failure(opening: "1234") == nil)
            #expect(store.isPolicyForged && store.policy == usual)
            #expect(try store.failure(opening: "1234") == nil)
            #expect(store.isPolicyForged && store.policy == usual)
        }
        let store = try volume.open()
        try store.changePolicy(
            PolicyChange(userInactivePeriod: .seconds(60)), passcode: try passcode("1234"))
        #expect(!store.isPolicyForged && store.policy.gracePeriod == usual.gracePeriod)
        let again = try volume.open()
        #expect(again.policy == store.policy)
        #expect(try again.failure(opening: "1234") == nil)
        #expect(!again.isPolicyForged && again.policy == store.policy)
    }

    @Test("format 1 has no authenticator: there it counts after the unlock, too")
    func format1() throws {
        let volume = try SimulatedVolume(passcode: "1234", format: .version1)
        try volume.forgePolicy { $0.gracePeriod = .seconds(3600) }
        let store = try volume.open()
        #expect(try store.failure(opening: "1234") == nil)
        #expect(store.policy.gracePeriod == .seconds(3600) && !store.isPolicyForged)
    }

    @Test("values that are stronger than the usual ones hold as they were forged")
    func strongerValues() throws {
        let volume = try SimulatedVolume(passcode: "1234", format: .version2)
        let cost = Scrypt.Parameters(n: 1 << 12, r: 8, p: 1)
        try volume.forgePolicy {
            $0.gracePeriod = .seconds(2)
            $0.userInactivePeriod = .seconds(30 * 86400)
            $0.erasesAfterTenWrongPasscodes = true
            $0.passcodeCost = cost
        }
        let store = try volume.open()
        #expect(try store.failure(opening: "1234") == nil)
        #expect(store.isPolicyForged)
        #expect(store.policy.gracePeriod == .seconds(2))
        #expect(store.policy.userInactivePeriod == usual.userInactivePeriod)
        #expect(store.policy.erasesAfterTenWrongPasscodes && store.policy.passcodeCost == cost)
    }

    @Test("a cheaper cost counts as that of the passcode")
    func cost() throws {
        let volume = try SimulatedVolume(passcode: "1234", cost: .n(1 << 11), format: .version2)
        try volume.forgePolicy { $0.passcodeCost = ScryptCost.test.parameters() }
        let store = try volume.open()
        #expect(try store.failure(opening: "1234") == nil)
        #expect(store.isPolicyForged && store.policy.passcodeCost.n == 1 << 11)
    }

    @Test("each use of the passcode finds it, and each new keybag has the stronger values")
    func everyUse() throws {
        func after(_ use: (KeybagStore) throws -> Void) throws -> KeybagStore {
            let store = try forged().open()
            try use(store)
            #expect(store.policy == usual)
            return store
        }
        let changed = try after {
            try $0.changePasscode(try passcode("1234"), to: try passcode("new"), cost: .test)
        }
        let removed = try after { try $0.removePasscode(try passcode("1234")) }
        let set = try after { store in
            try store.removePasscode(try passcode("1234"))
            try store.setPasscode(try passcode("new"), cost: .test)
        }
        let policy = try after {
            try $0.changePolicy(PolicyChange(), passcode: try passcode("1234"))
        }
        for store in [changed, removed, set, policy] { #expect(!store.isPolicyForged) }
        let kit = try after {
            _ = try $0.createRecoveryKit(passcode: try passcode("1234"), at: "/kit")
        }
        #expect(kit.isPolicyForged)
    }

    @Test("what the owner sets is not taken for a forgery", arguments: ["1234", nil])
    func ownChanges(first: String?) throws {
        let volume = try SimulatedVolume(passcode: first, format: .version2)
        let change = PolicyChange(
            gracePeriod: .seconds(60), userInactivePeriod: .seconds(7 * 86400))
        func expectAuthentic(_ text: String?) throws {
            let store = try volume.open()
            _ = try store.allKeys(text)
            #expect(!store.isPolicyForged && store.format == .version2)
            #expect(store.policy.gracePeriod == .seconds(60))
        }
        let store = try volume.open()
        _ = try store.allKeys(first)
        #expect(!store.isPolicyForged && store.policy == usual)
        try store.changePolicy(change, passcode: try first.map { try passcode($0) })
        try expectAuthentic(first)
        if first == nil {
            try store.setPasscode(try passcode("1234"))
            try expectAuthentic("1234")
        }
        try store.changePasscode(try passcode("1234"), to: try passcode("new"))
        try expectAuthentic("new")
        try store.removePasscode(try passcode("new"))
        try expectAuthentic(nil)
        // It stays so after a restart in the middle of a change, which opening finishes.
        volume.storage[SimulatedVolume.copy] = nil
        try expectAuthentic(nil)
    }

    @Test("a policy that the owner set before is a forgery in a later keybag")
    func earlierPolicy() throws {
        let volume = try SimulatedVolume(passcode: "1234", format: .version2)
        let store = try volume.open()
        try store.changePolicy(
            PolicyChange(gracePeriod: .seconds(3600)), passcode: try passcode("1234"))
        let long = try volume.policyBytes()
        try store.changePolicy(
            PolicyChange(gracePeriod: .seconds(10)), passcode: try passcode("1234"))
        try volume.plantPolicy(long)
        let again = try volume.open()
        #expect(again.policy.gracePeriod == .seconds(3600))
        #expect(try again.failure(opening: "1234") == nil)
        #expect(again.isPolicyForged && again.policy.gracePeriod == .seconds(10))
    }

    @Test("a keybag that is said to be of version 1: the passcode does not open it")
    func downgraded() throws {
        let volume = try SimulatedVolume(passcode: "1234", format: .version2)
        try volume.downgrade()
        let store = try volume.open()
        #expect(store.format == .version1, "the device's files make such a keybag")
        #expect(try store.deviceClasses() == [.d])
        #expect(try store.failure(opening: "1234") == .wrongPasscode(triesLeft: 9))
    }

    @Test("without a passcode a wrong authenticator shows when the volume opens")
    func withoutPasscode() throws {
        let store = try forged(passcode: nil).open()
        #expect(!store.isPolicyForged)
        _ = try store.deviceClasses()
        #expect(store.isPolicyForged)
        #expect(store.policy.gracePeriod == usual.gracePeriod)
        #expect(store.policy.passcodeCost == ScryptCost.minimum)
        try store.changePolicy(PolicyChange(), passcode: nil)
        #expect(!store.isPolicyForged && store.policy.gracePeriod == usual.gracePeriod)
    }

    @Test("adopting by a recovery kit keeps the owner's policy, and no forged one")
    func adopted() throws {
        for isForged in [false, true] {
            let volume = try SimulatedVolume(passcode: "1234", format: .version2)
            try volume.open().changePolicy(
                PolicyChange(gracePeriod: .seconds(60)), passcode: try passcode("1234"))
            let code = try volume.open().createRecoveryKit(
                passcode: try passcode("1234"), at: "/kit")
            if isForged { try volume.forgePolicy { $0.gracePeriod = .seconds(3600) } }
            let keys = try KeybagStore.openRecoveryKit(at: "/kit", code: code, volume.storage)
            let adoption = try KeybagStore.adopt(
                volumePath: SimulatedVolume.volume, stateRoot: SimulatedVolume.state, keys: keys,
                passcode: try passcode("new"), cost: .test, format: .version2,
                replacesDeviceKeys: true, storage: volume.storage)
            #expect(adoption.keptPolicy == !isForged)
            let store = try volume.open()
            #expect(store.format == .version2)
            #expect(store.policy.gracePeriod == .seconds(isForged ? 10 : 60))
            #expect(try store.failure(opening: "new") == nil)
            #expect(!store.isPolicyForged)
        }
    }

    @Test("it is told once, and before the unlock goes on")
    func told() throws {
        let volume = try forged()
        let seen = Seen()
        let store = try volume.open()
        store.onForgedPolicy { seen.add($0) }
        #expect(seen.policies.isEmpty)
        for _ in 0..<2 { #expect(try store.failure(opening: "1234") == nil) }
        #expect(seen.policies == [usual])
        // A later listener is told at once.
        let later = Seen()
        store.onForgedPolicy { later.add($0) }
        #expect(later.policies == [usual])
    }

    private final class Seen: Sendable {
        private let list = Mutex<[KeybagPolicy]>([])
        var policies: [KeybagPolicy] { list.withLock { $0 } }
        func add(_ policy: KeybagPolicy) { list.withLock { $0.append(policy) } }
    }
}
