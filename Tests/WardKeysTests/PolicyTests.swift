import Glibc
import Testing
import WardFormat
import WardSystem

@testable import WardKeys

/// The policy in the keybag, and erasing.
@Suite("Policy and erase")
struct PolicyTests {
    private let wanted = PolicyChange(
        gracePeriod: .milliseconds(2500), userInactivePeriod: .seconds(7200),
        erasesAfterTenWrongPasscodes: true)

    @Test("the policy is kept, sealed, and changed with the passcode only")
    func policy() throws {
        let volume = try SimulatedVolume(passcode: "1234")
        let store = try volume.open()
        let before = store.policy
        #expect(before.gracePeriod == .seconds(10) && before.userInactivePeriod == .seconds(86400))
        #expect(!before.erasesAfterTenWrongPasscodes)
        #expect(
            code { () throws(KeybagError) in try store.changePolicy(wanted, passcode: nil) }
                == .passcodeNeeded)
        do throws(KeybagError) {
            try store.changePolicy(wanted, passcode: try! passcode("1235"))
            Issue.record("a wrong passcode changed the policy")
        } catch {
            #expect(error.code == .wrongPasscode(triesLeft: 9))
        }
        #expect(store.policy == before)
        try store.changePolicy(wanted, passcode: try passcode("1234"))
        let again = try volume.open()
        #expect(again.policy == wanted.applied(to: before) && again.generation == 2)
        #expect(again.policy.gracePeriod == .milliseconds(2500))
        #expect(again.policy.erasesAfterTenWrongPasscodes)
        #expect(try again.failure(opening: "1234") == nil)
        // Other settings keep their values.
        try again.changePolicy(
            PolicyChange(gracePeriod: .zero), passcode: try passcode("1234"))
        #expect(again.policy.userInactivePeriod == .seconds(7200))
        #expect(again.policy.gracePeriod == .zero && again.policy.erasesAfterTenWrongPasscodes)
    }

    @Test("a policy that was forged without the passcode keeps nothing open beyond the limits")
    func forgedPeriods() throws {
        let volume = try SimulatedVolume(passcode: "1234")
        try volume.forgePolicy {
            $0.gracePeriod = .milliseconds(UInt32.max)
            $0.userInactivePeriod = .seconds(UInt32.max)
        }
        let store = try volume.open()
        #expect(store.generation == 1, "the forgery is accepted")
        #expect(store.policy.gracePeriod == .seconds(3600))
        #expect(store.policy.userInactivePeriod == .seconds(30 * 86400))
        // A change stores no longer one either, and shorter ones count as they are.
        try store.changePolicy(
            PolicyChange(gracePeriod: .seconds(3601), userInactivePeriod: .seconds(5)),
            passcode: try passcode("1234"))
        #expect(store.policy.gracePeriod == .seconds(3600))
        #expect(store.policy.userInactivePeriod == .seconds(5))
        #expect(try volume.open().policy == store.policy)
    }

    @Test("an older keybag does not bring the older policy back, not even as a restore")
    func policyRolledBack() throws {
        let volume = try SimulatedVolume(passcode: "1234")
        let old = try #require(volume.storage[SimulatedVolume.keybag])
        try volume.open().changePolicy(wanted, passcode: try passcode("1234"))
        volume.storage[SimulatedVolume.keybag] = old
        volume.storage[SimulatedVolume.copy] = old
        #expect(
            code { () throws(KeybagError) in
                _ = try volume.open(acceptsOlderGeneration: true)
            } == .replayed(generation: 1, remembered: 2))
    }

    @Test("set at creation")
    func atCreation() throws {
        let storage = SimulatedKeyStorage()
        _ = try KeybagStore.create(
            volumePath: SimulatedVolume.volume, stateRoot: SimulatedVolume.state,
            parameters: VolumeParameters(uuid: SystemRandom.bytes(16), pageBytes: 4096),
            passcode: nil, cost: .test, recoveryKitPath: nil, policy: wanted, storage: storage)
        let store = try KeybagStore(
            volumePath: SimulatedVolume.volume, stateRoot: SimulatedVolume.state, storage: storage)
        #expect(store.policy.erasesAfterTenWrongPasscodes)
        #expect(store.policy.gracePeriod == .milliseconds(2500))
    }

    // MARK: Erase

    @Test(
        "erase at a power cut: as before or erased, and it can be repeated (L9)",
        arguments: SimulatedKeyStorage.Survival.allCases)
    func eraseInterrupted(survival: SimulatedKeyStorage.Survival) throws {
        let volume = try SimulatedVolume(passcode: "1234")
        let keys = try volume.open().allKeys("1234")
        // An earlier passcode change was interrupted half-way.
        var image = volume.storage.afterPowerLoss(.everything)
        let half = SimulatedKeyStorage(image, failingAt: 12)
        let halfStore = try volume.open(half)
        _ = try? halfStore.changePasscode(try passcode("1234"), to: try passcode("5678"))
        image = half.afterPowerLoss(.everything)
        var sawBefore = false
        for point in 0... {
            let storage = SimulatedKeyStorage(image)
            let store = try volume.open(storage)
            let failing = SimulatedKeyStorage(storage.image, failingAt: point)
            _ = try? volume.open(failing).erase()
            let later = SimulatedKeyStorage(failing.afterPowerLoss(survival))
            do {
                let again = try volume.open(later)
                sawBefore = true
                #expect(failing.hasFailed, "acknowledged, and not erased")
                #expect(try again.allKeys("1234") == keys)
                try again.erase()
            } catch let error as KeybagError {
                #expect(error.code == .erased, "point \(point)")
            }
            #expect(code { () throws(KeybagError) in _ = try volume.open(later) } == .erased)
            try store.erase()
            try store.erase()
            if !failing.hasFailed { break }
        }
        #expect(sawBefore)
    }

    @Test("after an erase a recovery kit made before opens all keys, and nothing else does")
    func kitAfterErase() throws {
        let disk = try DiskVolume(passcode: "1234")
        defer { disk.remove() }
        let store = try disk.open()
        let keys = try store.allKeys("1234")
        let kit = disk.root + "/kit"
        defer { unlink(kit) }
        let recoveryCode = try store.createRecoveryKit(passcode: try passcode("1234"), at: kit)
        try store.erase()
        #expect(code { () throws(KeybagError) in _ = try disk.open() } == .erased)
        #expect(try store.failure(opening: "1234") == .erased, "in the process that had it open")
        #expect(
            code { () throws(KeybagError) in
                _ = try store.createRecoveryKit(passcode: nil, at: kit + "2")
            } == .erased, "no new kit")
        let recovered = try KeybagStore.openRecoveryKit(at: kit, code: recoveryCode)
        let keyring = ClassKeyring(classBPublicKey: recovered.classBPublicKey)
        let volumeKey = try recovered.install(into: keyring).exposed()
        #expect(
            try [volumeKey]
                + ProtectionClass.allCases.map { try keyring.withKey(of: $0) { $0.exposed() } }
                == keys)
    }

    @Test("by UUID, where the keybag is gone; what an unreadable keybag names")
    func eraseByUUID() throws {
        let disk = try DiskVolume(passcode: "1234")
        defer { disk.remove() }
        #expect(KeybagStore.volumeUUID(in: disk.volume) == disk.parameters.uuidString)
        unlink(disk.volume + "/ward.keybag")
        #expect(KeybagStore.volumeUUID(in: disk.volume) == disk.parameters.uuidString)
        for _ in 0..<2 {
            try KeybagStore.erase(volumeUUID: disk.parameters.uuid, stateRoot: disk.state)
            #expect(code { () throws(KeybagError) in _ = try disk.open() } == .erased)
        }
        #expect(KeybagStore.volumeUUID(in: disk.root) == nil)
    }
}
