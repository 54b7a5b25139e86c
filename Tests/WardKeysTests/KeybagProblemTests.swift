import Glibc
import Testing
import WardFormat
import WardSystem

@testable import WardKeys

/// `KeybagStore.problems`, for a check: says what is wrong with each of the two files and changes
/// nothing.
@Suite("Problems of keybags")
struct KeybagProblemTests {
    private struct Problem: Equatable {
        var path: String
        var text: String
        init(_ path: String, _ text: String) {
            self.path = path
            self.text = text
        }
    }

    private func problems(_ storage: SimulatedKeyStorage) throws(KeybagError) -> [Problem] {
        let before = storage.operations
        defer { #expect(storage.operations == before, "it changed something") }
        return try KeybagLoader(
            volumePath: SimulatedVolume.volume, stateRoot: SimulatedVolume.state, storage: storage,
            clock: .system, acceptsOlderGeneration: false
        ).problems().map { Problem($0.path, $0.problem) }
    }

    struct Damage: Sendable, CustomTestStringConvertible {
        let testDescription: String
        let problem: String
        let make: @Sendable ([UInt8]) throws -> [UInt8]?

        init(
            _ name: String, _ problem: String,
            _ make: @escaping @Sendable ([UInt8]) throws -> [UInt8]?
        ) {
            testDescription = name
            self.problem = problem
            self.make = make
        }
    }

    @Test(
        "one of the two files is not as it should be",
        arguments: [
            Damage("missing", "it is missing") { _ in nil },
            Damage("empty", "keybag: only 0 bytes") { _ in [] },
            Damage("zeros", "keybag: no magic number") { $0.map { _ in 0 } },
            Damage("cut short", "keybag: the checksum is wrong") { Array($0.dropLast(40)) },
            Damage("a bit flipped", "keybag: the checksum is wrong") {
                var bytes = $0
                bytes[100] ^= 1
                return bytes
            },
            Damage(
                "much too long",
                "keybag: \(Keybag.maximumBytes + 1) bytes, at most \(Keybag.maximumBytes) expected"
            ) { _ in
                [UInt8](repeating: 1, count: 5000)
            },
            Damage("an earlier version", "keybag: version 0") { resummed($0) { $0[8] = 0 } },
            Damage("page size changed", "keybag: pages of 513 bytes") {
                resummed($0) {
                    $0[26] = 1
                    $0[27] = 2
                }
            },
            Damage(
                "a slot changed", "the keybag does not authenticate with this device's keys"
            ) { resummed($0) { $0[100] ^= 1 } },
            Damage(
                "another volume's",
                "this device has no device key for the volume; a copied volume needs a recovery kit"
            ) { _ in
                try SimulatedVolume(passcode: nil).storage[SimulatedVolume.keybag]
            },
        ])
    func damaged(_ damage: Damage) throws {
        let volume = try SimulatedVolume(passcode: nil)
        let image = volume.storage.image
        #expect(try problems(volume.storage) == [])
        for path in [SimulatedVolume.keybag, SimulatedVolume.copy] {
            let storage = SimulatedKeyStorage(image)
            storage[path] = try damage.make(try #require(storage[path]))
            #expect(try problems(storage) == [Problem(path, damage.problem)])
            // Opening repairs it.
            _ = try volume.open(storage)
            #expect(try problems(storage) == [])
        }
    }

    @Test("one of the two files is an older one, by a change that was interrupted or by a restore")
    func older() throws {
        let volume = try SimulatedVolume(passcode: nil)
        let remembered = try #require(volume.storage[volume.directory.rememberedPath])
        let old = try #require(volume.storage[SimulatedVolume.keybag])
        try volume.open().changePolicy(PolicyChange(gracePeriod: .seconds(1)), passcode: nil)
        let image = volume.storage.image
        for path in [SimulatedVolume.keybag, SimulatedVolume.copy] {
            let storage = SimulatedKeyStorage(image)
            storage[path] = old
            #expect(
                try problems(storage) == [
                    Problem(
                        path,
                        "this keybag is older (generation 1) than the one this device wrote last (2)"
                    )
                ])
            // The power went before the device noted the new generation. The first file counts.
            storage[volume.directory.rememberedPath] = remembered
            #expect(
                try problems(storage) == [
                    Problem(SimulatedVolume.copy, "a change was interrupted")
                ])
        }
    }

    @Test("where neither file can be used it throws what opening throws")
    func neither() throws {
        let volume = try SimulatedVolume(passcode: nil)
        let good = try #require(volume.storage[SimulatedVolume.keybag])
        func fails(_ first: [UInt8]?, _ second: [UInt8]?) -> KeybagError.Code? {
            volume.storage[SimulatedVolume.keybag] = first
            volume.storage[SimulatedVolume.copy] = second
            return code { () throws(KeybagError) in _ = try problems(volume.storage) }
        }
        #expect(fails(good, good) == nil)
        #expect(fails(nil, nil) == .notAVolume)
        #expect(fails([], nil) == .damaged)
        #expect(fails(nil, []) == .damaged)
        #expect(fails([], []) == .damaged)
        let newer = resummed(good) { $0[8] = 3 }
        #expect(fails(newer, good) == .newerVersion)
        #expect(fails(good, newer) == .newerVersion)
        let foreign = resummed(good) { $0[10] ^= 1 }
        #expect(fails(foreign, foreign) == .noDeviceKey)
        #expect(fails(foreign, []) == .noDeviceKey)
    }

    @Test("a file that can't be read")
    func unreadable() throws {
        let disk = try DiskVolume(passcode: nil)
        defer { disk.remove() }
        for name in [Keybag.fileName, Keybag.copyFileName] {
            let path = disk.volume + "/" + name
            let good = disk.root + "/good"
            #expect(rename(path, good) == 0)
            #expect(mkdir(path, 0o700) == 0)
            let found = try KeybagStore.problems(volumePath: disk.volume, stateRoot: disk.state)
            #expect(found.map(\.path) == [path])
            #expect(found.map(\.problem) == ["can't read the keybag: \(Errno.invalidArgument)"])
            #expect(rmdir(path) == 0)
            #expect(rename(good, path) == 0)
            #expect(
                try KeybagStore.problems(volumePath: disk.volume, stateRoot: disk.state).isEmpty)
        }
    }
}
