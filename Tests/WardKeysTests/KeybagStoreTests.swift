import Testing
import WardSystem

@testable import WardFormat
@testable import WardKeys

@Suite("Keybag store")
struct KeybagStoreTests {
    @Test("without a passcode the device opens everything; with one, class D and the volume key")
    func slots() throws {
        let open = try SimulatedVolume(passcode: nil).open()
        #expect(!open.hasPasscode)
        #expect(try open.deviceClasses() == .all)
        #expect(try open.failure(opening: "1234") == .noPasscodeSet)

        let closed = try SimulatedVolume(passcode: "1234").open()
        #expect(closed.hasPasscode)
        #expect(try closed.deviceClasses() == .d)
        #expect(try closed.failure(opening: "1234") == nil)
        #expect(try closed.failure(opening: "1235") == .wrongPasscode(triesLeft: 9))
        #expect(closed.notes.isEmpty)
    }

    @Test("set, change and remove keep every key and move the generation on")
    func changes() throws {
        let volume = try SimulatedVolume(passcode: nil)
        let store = try volume.open()
        let keys = try store.allKeys(nil)
        #expect(Set(keys).count == 6)
        try store.setPasscode(try passcode("first"))
        #expect(try store.allKeys("first") == keys)
        #expect(throws: KeybagError.self) { try store.setPasscode(try passcode("again")) }
        try store.changePasscode(try passcode("first"), to: try passcode("sécond"))
        #expect(try store.failure(opening: "first") == .wrongPasscode(triesLeft: 9))
        #expect(
            try store.allKeys("se\u{301}cond") == keys, "NFC: another spelling, the same passcode")
        #expect(throws: KeybagError.self) {
            try store.changePasscode(try passcode("nonsense"), to: try passcode("third"))
        }
        try store.removePasscode(try passcode("sécond"))
        #expect(try store.allKeys(nil) == keys)
        #expect(store.generation == 4)
        let again = try volume.open()
        #expect(again.generation == 4 && !again.hasPasscode)
        #expect(try again.allKeys(nil) == keys)
    }

    // MARK: Damage

    @Test("any byte of one copy may be wrong: the other opens, and the bad one is replaced")
    func oneCopyDamaged() throws {
        let volume = try SimulatedVolume(passcode: "1234")
        let image = volume.storage.image
        let good = try #require(volume.storage[SimulatedVolume.keybag])
        #expect(good.count < 700)
        for path in [SimulatedVolume.keybag, SimulatedVolume.copy] {
            for index in good.indices {
                let storage = SimulatedKeyStorage(image)
                var bad = good
                bad[index] ^= 0x41
                storage[path] = bad
                let store = try volume.open(storage)
                #expect(storage[path] == good, "byte \(index) of \(path)")
                #expect(!store.notes.isEmpty)
                if index % 97 == 0 { #expect(try store.failure(opening: "1234") == nil) }
            }
        }
    }

    struct Damage: Sendable, CustomTestStringConvertible {
        let testDescription: String
        let code: KeybagError.Code
        let make: @Sendable ([UInt8]) -> [UInt8]?
    }

    @Test(
        "both copies damaged",
        arguments: [
            Damage(testDescription: "missing", code: .notAVolume) { _ in nil },
            Damage(testDescription: "empty", code: .damaged) { _ in [] },
            Damage(testDescription: "zeros", code: .damaged) { $0.map { _ in 0 } },
            Damage(testDescription: "cut short", code: .damaged) { Array($0.dropLast(40)) },
            Damage(testDescription: "too long", code: .damaged) { $0 + [0] },
            Damage(testDescription: "much too long", code: .damaged) {
                $0 + [UInt8](repeating: 0, count: 5000)
            },
            Damage(testDescription: "a bit flipped", code: .damaged) {
                var bytes = $0
                bytes[100] ^= 1
                return bytes
            },
            Damage(testDescription: "slot changed, checksum right", code: .damaged) {
                resummed($0) { $0[100] ^= 1 }
            },
            Damage(testDescription: "page size changed, checksum right", code: .damaged) {
                resummed($0) {
                    $0[26] = 0
                    $0[27] = 2
                }
            },
            Damage(testDescription: "generation changed, checksum right", code: .damaged) {
                resummed($0) { $0[62] += 1 }
            },
            Damage(testDescription: "another device's volume", code: .noDeviceKey) {
                resummed($0) { $0[10] ^= 1 }
            },
            Damage(testDescription: "the version of the other format", code: .damaged) {
                resummed($0) { $0[8] ^= 3 }
            },
            Damage(testDescription: "newer version", code: .newerVersion) {
                resummed($0) { $0[8] = 3 }
            },
        ], VolumeFormat.allCases)
    func bothCopiesDamaged(_ damage: Damage, format: VolumeFormat) throws {
        let volume = try SimulatedVolume(passcode: "1234", format: format)
        let good = try #require(volume.storage[SimulatedVolume.keybag])
        let bad = damage.make(good)
        volume.storage[SimulatedVolume.keybag] = bad
        volume.storage[SimulatedVolume.copy] = bad
        #expect(code { () throws(KeybagError) in _ = try volume.open() } == damage.code)
        #expect(volume.storage[SimulatedVolume.keybag] == bad, "nothing is written over it")
    }

    @Test("every byte of both copies changed, the checksum made right: refused, or not what opens")
    func everyByteResummed() throws {
        let volume = try SimulatedVolume(passcode: "1234")
        let image = volume.storage.image
        let good = try #require(volume.storage[SimulatedVolume.keybag])
        var refused = 0
        for index in 0..<(good.count - 32) {
            let storage = SimulatedKeyStorage(image)
            let bad = resummed(good) { $0[index] ^= 1 << UInt8(index % 8) }
            storage[SimulatedVolume.keybag] = bad
            storage[SimulatedVolume.copy] = bad
            do {
                // The passcode's slot is read only when it is needed.
                let store = try volume.open(storage)
                #expect(try store.failure(opening: "1234") != nil, "byte \(index) was not missed")
            } catch is KeybagError {
                refused += 1
            }
        }
        #expect(refused > 200)
    }

    @Test("the keybag of another volume: one copy gives nothing, both are refused")
    func anotherVolume() throws {
        let volume = try SimulatedVolume(passcode: "1234")
        let keys = try volume.open().allKeys("1234")
        let foreign = try #require(
            SimulatedVolume(passcode: "1234").storage[SimulatedVolume.keybag])
        for path in [SimulatedVolume.keybag, SimulatedVolume.copy] {
            let storage = SimulatedKeyStorage(volume.storage.image)
            storage[path] = foreign
            if let store = try? volume.open(storage) {
                #expect(try store.allKeys("1234") == keys, "\(path)")
            }
        }
        volume.storage[SimulatedVolume.keybag] = foreign
        volume.storage[SimulatedVolume.copy] = foreign
        #expect(code { () throws(KeybagError) in _ = try volume.open() } == .noDeviceKey)
    }

    @Test("a whole newer version is not replaced by an older copy")
    func newerVersionStays() throws {
        let volume = try SimulatedVolume(passcode: nil)
        let newer = resummed(try #require(volume.storage[SimulatedVolume.keybag])) { $0[8] = 3 }
        volume.storage[SimulatedVolume.keybag] = newer
        #expect(code { () throws(KeybagError) in _ = try volume.open() } == .newerVersion)
        #expect(volume.storage[SimulatedVolume.keybag] == newer)
    }

    @Test("device files: missing, damaged, of another volume")
    func deviceFiles() throws {
        let volume = try SimulatedVolume(passcode: "1234")
        let image = volume.storage.image
        let directory = volume.directory
        func open(_ path: String, _ change: ([UInt8]) -> [UInt8]?) -> KeybagError.Code? {
            let storage = SimulatedKeyStorage(image)
            storage[path] = change(storage[path]!)
            return code { () throws(KeybagError) in _ = try volume.open(storage) }
        }
        #expect(open(directory.deviceKeyPath) { _ in nil } == .noDeviceKey)
        #expect(open(directory.deviceKeyPath) { $0.map { _ in 0 } } == .damaged)
        #expect(open(directory.deviceKeyPath) { resummed($0) { $0[40] ^= 1 } } == .damaged)
        #expect(open(directory.deviceKeyPath) { resummed($0) { $0[16] ^= 1 } } == .damaged)
        #expect(open(directory.deviceKeyPath) { resummed($0) { $0[8] = 2 } } == .newerVersion)
        #expect(open(directory.effaceableKeyPath) { _ in nil } == .erased)
        #expect(open(directory.effaceableKeyPath) { $0.map { _ in 0 } } == .erased)
        #expect(open(directory.effaceableKeyPath) { resummed($0) { $0[40] ^= 1 } } == .damaged)
        #expect(open(directory.effaceableKeyPath) { Array($0.dropLast()) } == .damaged)
        // The remembered generation may be lost; the volume still opens.
        #expect(open(directory.rememberedPath) { _ in nil } == nil)
        #expect(open(directory.rememberedPath) { _ in [1, 2, 3] } == nil)
    }

    // MARK: Replay and erase

    @Test("an older keybag is refused, and taken when told that this was a restore")
    func replay() throws {
        // Without a passcode a change of the policy keeps the effaceable key, so the older keybag
        // is authentic.
        let volume = try SimulatedVolume(passcode: nil)
        let old = try #require(volume.storage[SimulatedVolume.keybag])
        try volume.open().changePolicy(PolicyChange(gracePeriod: .seconds(1)), passcode: nil)
        volume.storage[SimulatedVolume.keybag] = old
        // Only one copy is older: the other one counts.
        #expect(try volume.open().policy.gracePeriod == .seconds(1))
        volume.storage[SimulatedVolume.keybag] = old
        volume.storage[SimulatedVolume.copy] = old
        #expect(
            code { () throws(KeybagError) in _ = try volume.open() }
                == .replayed(generation: 1, remembered: 2))
        let restored = try volume.open(acceptsOlderGeneration: true)
        #expect(restored.generation == 1 && restored.policy.gracePeriod == .seconds(10))
        #expect(try volume.open().generation == 1, "from now on it is the volume")
    }

    @Test("erase: nothing opens, not even with the right passcode or an old copy")
    func erase() throws {
        let volume = try SimulatedVolume(passcode: "1234")
        let store = try volume.open()
        try Array("/names".utf8).withUnsafeBytes {
            try volume.storage.write(volume.directory.logPath, $0, isPublic: false)
        }
        try store.erase()
        #expect(volume.storage[volume.directory.logPath] == nil, "names are in the log")
        #expect(try store.failure(opening: "1234") == .erased)
        #expect(code { () throws(KeybagError) in _ = try volume.open() } == .erased)
        #expect(volume.storage[volume.directory.effaceableKeyPath] == nil)
    }

    @Test("a change by another process is not overwritten")
    func twoProcesses() throws {
        let volume = try SimulatedVolume(passcode: "1234")
        let first = try volume.open()
        let second = try volume.open()
        try first.changePasscode(try passcode("1234"), to: try passcode("5678"))
        #expect(try second.failure(opening: "1234") == .changedElsewhere)
        #expect(try volume.open().failure(opening: "5678") == nil)
    }
}

/// Changes the bytes of a structure and corrects its checksum.
func resummed(_ bytes: [UInt8], _ change: (inout [UInt8]) -> Void) -> [UInt8] {
    var body = Array(bytes.dropLast(32))
    change(&body)
    return KeybagEnvelope.seal(body)
}

func code(_ body: () throws(KeybagError) -> Void) -> KeybagError.Code? {
    do throws(KeybagError) {
        try body()
        return nil
    } catch {
        return error.code
    }
}
