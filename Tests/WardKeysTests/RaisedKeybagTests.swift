import Testing
import WardFormat

@testable import WardKeys

/// A keybag of version 1 becomes one of version 2, as the last step of a volume's new format.
@Suite("The keybag of a new format")
struct RaisedKeybagTests {
    private let change = PolicyChange(
        gracePeriod: .seconds(5), erasesAfterTenWrongPasscodes: true)

    private func given(_ text: String?) throws -> Passcode? {
        guard let text else { return nil }
        return try passcode(text)
    }

    @Test("same passcode, keys and policy; the old keybag is worthless", arguments: ["1234", nil])
    func raised(text: String?) throws {
        let volume = try SimulatedVolume(passcode: text, format: .version1)
        let store = try volume.open()
        let keys = try store.allKeys(text)
        try store.changePolicy(change, passcode: try given(text))
        let (policy, generation) = (store.policy, store.generation)
        let old = try #require(volume.storage[SimulatedVolume.keybag])
        try store.raise(to: .version2, passcode: try given(text))
        for store in [store, try volume.open()] {
            #expect(store.format == .version2 && store.generation == generation + 1)
            #expect(try store.allKeys(text) == keys)
            #expect(store.policy == policy && !store.isPolicyForged)
        }
        // Again changes nothing.
        try store.raise(to: .version2, passcode: nil)
        #expect(store.generation == generation + 1)
        volume.storage[SimulatedVolume.keybag] = old
        volume.storage[SimulatedVolume.copy] = old
        #expect(
            code { () throws(KeybagError) in
                _ = try volume.open(acceptsOlderGeneration: true)
            } == .replayed(generation: generation, remembered: generation + 1))
    }

    @Test("from then on a forged policy shows")
    func thenForged() throws {
        let volume = try SimulatedVolume(passcode: "1234", format: .version1)
        try volume.open().raise(to: .version2, passcode: try passcode("1234"))
        try volume.forgePolicy { $0.gracePeriod = .seconds(3600) }
        let store = try volume.open()
        #expect(try store.failure(opening: "1234") == nil)
        #expect(store.isPolicyForged && store.policy.gracePeriod == .seconds(10))
    }

    @Test("it needs the passcode")
    func needsPasscode() throws {
        let volume = try SimulatedVolume(passcode: "1234", format: .version1)
        let store = try volume.open()
        #expect(
            code { () throws(KeybagError) in try store.raise(to: .version2, passcode: nil) }
                == .passcodeNeeded)
        do throws(KeybagError) {
            try store.raise(to: .version2, passcode: try! passcode("1235"))
            Issue.record("a wrong passcode made a new keybag")
        } catch {
            #expect(error.code == .wrongPasscode(triesLeft: 9))
        }
        #expect(store.format == .version1 && store.generation == 1)
    }

    @Test(
        "the power goes at any step: the old keybag or the new one, and the passcode opens either",
        arguments: ["1234", nil], SimulatedKeyStorage.Survival.allCases)
    func everyCrashPoint(text: String?, survival: SimulatedKeyStorage.Survival) throws {
        let volume = try SimulatedVolume(passcode: text, format: .version1)
        let keys = try volume.open().allKeys(text)
        let image = volume.storage.afterPowerLoss(.everything)
        var seen: Set<VolumeFormat> = []
        for point in 0... {
            let storage = SimulatedKeyStorage(image, failingAt: point)
            var isDone = false
            if let store = try? volume.open(storage) {
                isDone =
                    (try? store.raise(to: .version2, passcode: try given(text))) != nil
                if !isDone { #expect(storage.hasFailed) }
            }
            let later = try volume.open(SimulatedKeyStorage(storage.afterPowerLoss(survival)))
            #expect(try later.allKeys(text) == keys, "point \(point)")
            #expect(!later.isPolicyForged, "point \(point)")
            if isDone { #expect(later.format == .version2, "acknowledged at point \(point)") }
            seen.insert(later.format)
            if !storage.hasFailed { break }
        }
        #expect(seen == [.version1, .version2])
    }
}
