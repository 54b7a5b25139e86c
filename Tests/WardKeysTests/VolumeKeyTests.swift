import Glibc
import Testing
import WardFormat
import WardSystem

@testable import WardKeys

/// The volume key for reading a volume that may be mounted: no lock, no repair, no write.
@Suite("The volume key alone")
struct VolumeKeyTests {
    private func volumeKey(_ storage: SimulatedKeyStorage) throws(KeybagError) -> [UInt8] {
        try KeybagStore.volumeKey(
            volumePath: SimulatedVolume.volume, stateRoot: SimulatedVolume.state, storage: storage
        ).exposed()
    }

    @Test("it opens at every point of a change of the passcode, and changes nothing")
    func everyPoint() throws {
        let volume = try SimulatedVolume(passcode: "old")
        let key = try volume.open().allKeys("old")[0]
        let image = volume.storage.afterPowerLoss(.everything)
        var isDone = false
        var point = 0
        while !isDone {
            let storage = SimulatedKeyStorage(image, failingAt: point)
            isDone =
                (try? volume.open(storage).changePasscode(
                    try passcode("old"), to: try passcode("new"))) != nil
            let later = SimulatedKeyStorage(storage.afterPowerLoss(.everything))
            let before = later.operations
            #expect(try volumeKey(later) == key, "point \(point)")
            #expect(later.operations == before, "nothing is written")
            point += 1
        }
        #expect(point > 10)
    }

    @Test("while another process has the lock, and from a keybag that is older than remembered")
    func lockedAndOlder() throws {
        let disk = try DiskVolume(passcode: nil)
        defer { disk.remove() }
        let key = try disk.open().allKeys(nil)[0]
        let directory = StateDirectory(root: disk.state, volumeUUID: disk.parameters.uuid)
        let old = try DiskKeyStorage().readBytes(disk.volume + "/ward.keybag", limit: 4096)
        try disk.open().changePolicy(PolicyChange(gracePeriod: .seconds(20)), passcode: nil)
        for name in ["ward.keybag", "ward.keybag.copy"] {
            try DiskKeyStorage().replace(disk.volume + "/" + name, with: old, isPublic: true)
        }
        let lock = OwnedDescriptor(
            adopting: try #require(try DiskKeyStorage().lock(directory.lockPath)))
        func look() throws(KeybagError) -> [UInt8] {
            try KeybagStore.volumeKey(volumePath: disk.volume, stateRoot: disk.state).exposed()
        }
        #expect(try look() == key)
        try DiskKeyStorage().remove(disk.volume + "/ward.keybag")
        #expect(try look() == key, "from the copy, and the other is not put in its place")
        #expect(disk.names(disk.volume) == ["ward.keybag.copy"])
        _ = lock.rawValue
    }

    @Test("erased, without a device key, and no volume at all")
    func errors() throws {
        let disk = try DiskVolume(passcode: "1234")
        defer { disk.remove() }
        let directory = StateDirectory(root: disk.state, volumeUUID: disk.parameters.uuid)
        func failure() -> KeybagError.Code? {
            do throws(KeybagError) {
                _ = try KeybagStore.volumeKey(volumePath: disk.volume, stateRoot: disk.state)
                return nil
            } catch {
                return error.code
            }
        }
        unlink(directory.effaceableKeyPath)
        #expect(failure() == .erased)
        unlink(directory.deviceKeyPath)
        #expect(failure() == .noDeviceKey)
        for name in ["ward.keybag", "ward.keybag.copy"] { unlink(disk.volume + "/" + name) }
        #expect(failure() == .notAVolume)
    }
}
