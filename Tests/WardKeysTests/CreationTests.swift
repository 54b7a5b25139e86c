import Glibc
import Testing
import WardFormat
import WardSystem

@testable import WardKeys

/// A power cut during `ward init` leaves no volume, or a whole one.
@Suite struct CreationTests {
    private static let kit = "/ward-test-kits/kit"
    private static let root = SimulatedVolume.volume + "/root"

    /// Does what `ward init` does, with one file for the rest of the volume.
    private func create(_ storage: SimulatedKeyStorage, _ uuid: [UInt8]) throws -> RecoveryCode? {
        try KeybagStore.create(
            volumePath: SimulatedVolume.volume, stateRoot: SimulatedVolume.state,
            parameters: VolumeParameters(uuid: uuid, pageBytes: 4096),
            passcode: try passcode("1234"), cost: .test, recoveryKitPath: CreationTests.kit,
            storage: storage
        ) { volumeKey, _ throws(KeybagError) in
            guard volumeKey.count == 32 else { throw .noLockedMemory(CreationTests.root) }
            do throws(Errno) {
                try storage.replace(CreationTests.root, with: [1, 2, 3], isPublic: true)
            } catch {
                throw .system(error, CreationTests.root, "can't make the root")
            }
        }
    }

    @Test(
        "A crash at any moment leaves no keybag, or a volume that opens; made again, it is made",
        arguments: SimulatedKeyStorage.Survival.allCases)
    func everyCrashPoint(survival: SimulatedKeyStorage.Survival) throws {
        var sawNone = false
        var sawWhole = false
        for point in 0... {
            let uuid = SystemRandom.bytes(16)
            let storage = SimulatedKeyStorage(failingAt: point)
            let isMade = (try? create(storage, uuid)) != nil
            #expect(isMade || storage.hasFailed)
            let later = SimulatedKeyStorage(storage.afterPowerLoss(survival))
            if later[SimulatedVolume.keybag] == nil {
                #expect(!isMade)
                #expect(later[SimulatedVolume.copy] == nil, "point \(point): what is that?")
                #expect(later[CreationTests.kit] == nil, "a kit of nothing is in the way")
                sawNone = true
                let again = SystemRandom.bytes(16)
                #expect(try create(later, again) != nil, "point \(point)")
            } else {
                #expect(later[CreationTests.root] == [1, 2, 3], "point \(point): half a volume")
                sawWhole = true
            }
            let store = try KeybagStore(
                volumePath: SimulatedVolume.volume, stateRoot: SimulatedVolume.state,
                clock: .system, acceptsOlderGeneration: false, storage: later)
            #expect(try store.failure(opening: "1234") == nil, "point \(point)")
            if !storage.hasFailed {
                #expect(point > 15, "there are many steps; the last failing one was \(point)")
                break
            }
        }
        #expect(sawNone && sawWhole)
    }
}
