import Testing
import WardFormat
import WardSystem

@testable import WardKeys

/// The power goes before each write, fsync and rename of a change of the passcode (row L7).
@Suite("Power loss while the passcode changes")
struct PowerLossTests {
    enum Change: CaseIterable, Sendable {
        case set
        case change
        case remove

        var before: String? { self == .set ? nil : "old" }
        var after: String? { self == .remove ? nil : "new" }

        func perform(_ store: KeybagStore) throws {
            switch self {
            case .set: try store.setPasscode(try passcode("new"))
            case .change: try store.changePasscode(try passcode("old"), to: try passcode("new"))
            case .remove: try store.removePasscode(try passcode("old"))
            }
        }
    }

    /// Whether the new passcode opens; fails if both open, or neither.
    private func whatOpens(_ store: KeybagStore, _ change: Change, _ keys: [[UInt8]]) throws -> Bool
    {
        let before = try opens(store, change.before, keys)
        let after = try opens(store, change.after, keys)
        #expect(before != after, "old: \(before), new: \(after)")
        return after
    }

    private func opens(_ store: KeybagStore, _ text: String?, _ keys: [[UInt8]]) throws -> Bool {
        guard store.hasPasscode == (text != nil) else { return false }
        do {
            #expect(try store.allKeys(text) == keys, "the keys are the same as before")
            return true
        } catch let error as KeybagError where error.code == .wrongPasscode(triesLeft: 9) {
            return false
        }
    }

    @Test(
        "the old or the new passcode opens, never neither",
        arguments: Change.allCases, SimulatedKeyStorage.Survival.allCases)
    func everyCrashPoint(change: Change, survival: SimulatedKeyStorage.Survival) throws {
        let volume = try SimulatedVolume(passcode: change.before)
        let keys = try volume.open().allKeys(change.before)
        let image = volume.storage.afterPowerLoss(.everything)
        let oldBytes = try #require(volume.storage[SimulatedVolume.keybag])
        var sawOld = false
        var sawNew = false
        for point in 0... {
            let storage = SimulatedKeyStorage(image, failingAt: point)
            var isDone = true
            do {
                try change.perform(try volume.open(storage))
            } catch let error as KeybagError {
                isDone = false
                #expect(storage.hasFailed, "\(error)")
            }
            let later = SimulatedKeyStorage(storage.afterPowerLoss(survival))
            let isNew = try whatOpens(try volume.open(later), change, keys)
            if isDone { #expect(isNew, "acknowledged at point \(point), and the old one is back") }
            sawOld = sawOld || !isNew
            sawNew = sawNew || isNew
            #expect(later[SimulatedVolume.keybag] == later[SimulatedVolume.copy])
            if isNew { try expectWorthless(oldBytes, volume, later) }
            if !storage.hasFailed {
                #expect(
                    point > 15, "a change is many operations, the last failing one was \(point)")
                break
            }
        }
        #expect(sawOld && sawNew)
    }

    /// An old keybag opens neither as a fall-back nor as a restore by its owner.
    private func expectWorthless(
        _ old: [UInt8], _ volume: SimulatedVolume, _ storage: SimulatedKeyStorage
    ) throws {
        let replayed = SimulatedKeyStorage(storage.image)
        replayed[SimulatedVolume.keybag] = old
        replayed[SimulatedVolume.copy] = old
        for accepts in [false, true] {
            var code: KeybagError.Code?
            do throws(KeybagError) {
                _ = try volume.open(replayed, acceptsOlderGeneration: accepts)
            } catch {
                code = error.code
            }
            #expect(code == .replayed(generation: 1, remembered: 2), "accepting: \(accepts)")
        }
    }

    @Test(
        "a second power cut while the first one's rest is finished changes nothing",
        arguments: SimulatedKeyStorage.Survival.allCases)
    func crashInRecovery(survival: SimulatedKeyStorage.Survival) throws {
        let volume = try SimulatedVolume(passcode: "old")
        let keys = try volume.open().allKeys("old")
        let image = volume.storage.afterPowerLoss(.everything)
        for point in 0... {
            let storage = SimulatedKeyStorage(image, failingAt: point)
            _ = try? Change.change.perform(try volume.open(storage))
            let first = storage.afterPowerLoss(survival)
            for second in 0... {
                let storage = SimulatedKeyStorage(first, failingAt: second)
                _ = try? volume.open(storage)
                let later = SimulatedKeyStorage(storage.afterPowerLoss(survival))
                _ = try whatOpens(try volume.open(later), .change, keys)
                if !storage.hasFailed { break }
            }
            if !storage.hasFailed { break }
        }
    }

    @Test(
        "whatever part of what was not synced survives: the old or the new passcode opens",
        arguments: Change.allCases)
    func scattered(change: Change) throws {
        let volume = try SimulatedVolume(passcode: change.before)
        let keys = try volume.open().allKeys(change.before)
        let image = volume.storage.afterPowerLoss(.everything)
        for point in 0... {
            let storage = SimulatedKeyStorage(image, failingAt: point)
            let isDone = (try? change.perform(try volume.open(storage))) != nil
            for seed in UInt64(0)..<6 {
                let left = storage.afterPowerLoss(scattered: seed &* 1000 &+ UInt64(point))
                let isNew = try whatOpens(
                    try volume.open(SimulatedKeyStorage(left)), change, keys)
                #expect(isNew || !isDone, "acknowledged at point \(point), seed \(seed)")
            }
            if !storage.hasFailed { break }
        }
    }

    @Test("an error that is no power cut leaves a store that goes on")
    func goesOnAfterAnError() throws {
        let volume = try SimulatedVolume(passcode: "old")
        let image = volume.storage.afterPowerLoss(.everything)
        for point in 0... {
            let storage = SimulatedKeyStorage(image, failingAt: point)
            _ = try? Change.change.perform(try volume.open(storage))
            // The machine starts again, nothing was lost, and a new process opens the volume.
            let later = SimulatedKeyStorage(storage.afterPowerLoss(.everything))
            let store = try volume.open(later)
            let current = try store.failure(opening: "old") == nil ? "old" : "new"
            try store.changePasscode(try passcode(current), to: try passcode("third"))
            #expect(try volume.open(later).failure(opening: "third") == nil)
            if !storage.hasFailed { break }
        }
    }

    @Test(
        "a change of the policy: the old or the new one, and the passcode opens with either",
        arguments: SimulatedKeyStorage.Survival.allCases)
    func policy(survival: SimulatedKeyStorage.Survival) throws {
        let volume = try SimulatedVolume(passcode: "same")
        let keys = try volume.open().allKeys("same")
        let image = volume.storage.afterPowerLoss(.everything)
        var seen: Set<Bool> = []
        for point in 0... {
            let storage = SimulatedKeyStorage(image, failingAt: point)
            let change = PolicyChange(
                gracePeriod: .seconds(77), erasesAfterTenWrongPasscodes: true)
            var isDone = false
            if let store = try? volume.open(storage) {
                isDone =
                    (try? store.changePolicy(change, passcode: try passcode("same"))) != nil
            }
            let later = try volume.open(SimulatedKeyStorage(storage.afterPowerLoss(survival)))
            let isNew = later.policy.erasesAfterTenWrongPasscodes
            #expect(isNew == (later.policy.gracePeriod == .seconds(77)), "point \(point)")
            #expect(isNew || !isDone, "acknowledged at point \(point), and the old one is back")
            #expect(try later.allKeys("same") == keys, "point \(point)")
            seen.insert(isNew)
            if !storage.hasFailed { break }
        }
        #expect(seen == [false, true])
    }
}
