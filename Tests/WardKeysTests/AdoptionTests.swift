import Glibc
import Testing
import WardSystem

@testable import WardFormat
@testable import WardKeys

/// A copy of a volume becomes this device's own with a recovery kit. The power may go at every
/// step.
@Suite("Adopting a copy with a recovery kit")
struct AdoptionTests {
    static let otherState = "/ward-test-other-state"
    static let kit = "/ward-test-kit"

    /// A volume on simulated storage with a kit beside it, and the kit's code as it was shown.
    struct Original {
        let volume: SimulatedVolume
        let code: String
        /// Volume key, A, B, C, D, CX.
        let keys: [[UInt8]]
        var storage: SimulatedKeyStorage { volume.storage }

        init(passcode text: String?) throws {
            volume = try SimulatedVolume(passcode: text)
            let store = try volume.open()
            var given: Passcode?
            if let text { given = try passcode(text) }
            let made = try store.createRecoveryKit(passcode: given, at: AdoptionTests.kit)
            code = String(decoding: try made.text().exposed(), as: UTF8.self)
            keys = try store.allKeys(text)
        }

        /// The image with the volume and the kit alone, as another machine gets it.
        func copied() -> SimulatedKeyStorage.State {
            var image = storage.afterPowerLoss(.everything)
            let isOurs = { (name: String) in name.hasPrefix(SimulatedVolume.state) }
            image.names = image.names.filter { !isOurs($0.key) }
            image.durableNames = image.durableNames.filter { !isOurs($0.key) }
            return image
        }

        func opened(_ storage: SimulatedKeyStorage) throws -> RecoveredKeys {
            try KeybagStore.openRecoveryKit(
                at: AdoptionTests.kit,
                code: try RecoveryCode(text: try secret(Array(code.utf8))), storage)
        }

        @discardableResult
        func adopt(
            _ storage: SimulatedKeyStorage, passcode text: String? = "new",
            state: String = AdoptionTests.otherState, replaces: Bool = false,
            policy: PolicyChange = PolicyChange(), keysFrom: SimulatedKeyStorage? = nil
        ) throws -> Adoption {
            let keys = try opened(keysFrom ?? self.storage)
            var given: Passcode?
            if let text { given = try passcode(text) }
            return try KeybagStore.adopt(
                volumePath: SimulatedVolume.volume, stateRoot: state, keys: keys, passcode: given,
                cost: .test, policy: policy, format: keys.format, replacesDeviceKeys: replaces,
                storage: storage)
        }

        func open(
            _ storage: SimulatedKeyStorage, state: String = AdoptionTests.otherState,
            acceptsOlder: Bool = false
        ) throws(KeybagError) -> KeybagStore {
            try KeybagStore(
                volumePath: SimulatedVolume.volume, stateRoot: state,
                acceptsOlderGeneration: acceptsOlder, storage: storage)
        }
    }

    private func failure(_ body: () throws -> Void) -> KeybagError.Code? {
        do {
            try body()
            return nil
        } catch {
            return (error as? KeybagError)?.code
        }
    }

    @Test(
        "on another device: it opens with the new passcode or not yet, and adopting again finishes it",
        arguments: [nil, "old"], SimulatedKeyStorage.Survival.allCases)
    func everyCrashPoint(before: String?, survival: SimulatedKeyStorage.Survival) throws {
        let original = try Original(passcode: before)
        let image = original.copied()
        var seen: Set<Bool> = []
        for point in 0... {
            let storage = SimulatedKeyStorage(image, failingAt: point)
            let isDone = (try? original.adopt(storage)) != nil
            #expect(isDone || storage.hasFailed)
            let later = SimulatedKeyStorage(storage.afterPowerLoss(survival))
            var opens = false
            do {
                let store = try original.open(later)
                opens = true
                #expect(store.hasPasscode, "point \(point)")
                #expect(try store.failure(opening: "new") == nil, "point \(point)")
                #expect(try store.allKeys("new") == original.keys, "point \(point)")
                #expect(later[SimulatedVolume.keybag] == later[SimulatedVolume.copy])
            } catch let error as KeybagError {
                #expect(
                    [.noDeviceKey, .erased, .damaged].contains(error.code),
                    "point \(point): \(error)")
            }
            #expect(opens || !isDone, "acknowledged at point \(point), and gone")
            seen.insert(opens)
            // Adopts once more, with another passcode; an unfinished adoption starts from the
            // beginning.
            let again = SimulatedKeyStorage(storage.afterPowerLoss(survival))
            let refusal = failure { try original.adopt(again, passcode: "again") }
            let store = try original.open(again)
            if refusal == nil {
                #expect(try store.allKeys("again") == original.keys, "point \(point)")
            } else {
                #expect(refusal == .deviceHasKeys(opensThis: true) && opens, "point \(point)")
                #expect(try store.allKeys("new") == original.keys, "point \(point)")
            }
            if !storage.hasFailed {
                #expect(point > 15)
                break
            }
        }
        #expect(seen == [false, true])
    }

    /// The state of a device's own volume when its owner needs the kit.
    enum Plight: CaseIterable, Sendable {
        case forgotten
        case disabled
        case toBeErased
        case changedHalfWay

        func bring(_ original: Original) throws -> SimulatedKeyStorage.State {
            switch self {
            case .forgotten: break
            case .disabled, .toBeErased:
                if self == .toBeErased {
                    try original.volume.open().changePolicy(
                        PolicyChange(erasesAfterTenWrongPasscodes: true),
                        passcode: try passcode("old"))
                }
                let ledger = try original.volume.open().context.ledger
                // All ten tries are used, and the power went before the erase.
                try ledger.store(PasscodePolicy(wrongPasscodes: 10))
            case .changedHalfWay:
                // A change of the passcode left both effaceable keys and did not reach the keybag.
                let store = try original.volume.open()
                let context = store.context
                let other = try secret(SystemRandom.bytes(32))
                switch try context.effaceable.key(0) {
                case .some(let old): try context.effaceable.store(old: old, new: other)
                case .none: Issue.record("there is no effaceable key")
                }
            }
            return original.storage.afterPowerLoss(.everything)
        }
    }

    @Test(
        "on the device itself: the old or the new passcode, never neither",
        arguments: Plight.allCases, SimulatedKeyStorage.Survival.allCases)
    func everyCrashPointAtHome(plight: Plight, survival: SimulatedKeyStorage.Survival) throws {
        let original = try Original(passcode: "old")
        let kitHolder = SimulatedKeyStorage(original.storage.afterPowerLoss(.everything))
        let image = try plight.bring(original)
        var seen: Set<String> = []
        for point in 0... {
            let storage = SimulatedKeyStorage(image, failingAt: point)
            let isDone =
                (try? original.adopt(
                    storage, state: SimulatedVolume.state, replaces: true, keysFrom: kitHolder))
                != nil
            let later = SimulatedKeyStorage(storage.afterPowerLoss(survival))
            let oldKeybag = SimulatedKeyStorage(image)[SimulatedVolume.keybag]
            let isUntouched = later[SimulatedVolume.keybag] == oldKeybag
            var what = "refused"
            do {
                let store = try original.open(later, state: SimulatedVolume.state)
                if store.verdict == .allowed {
                    let old = try store.failure(opening: "old") == nil
                    let new = try store.failure(opening: "new") == nil
                    #expect(old != new, "point \(point): old \(old), new \(new)")
                    what = new ? "new" : "old"
                    #expect(try store.allKeys(what) == original.keys, "point \(point)")
                }
            } catch let error as KeybagError {
                // Only an erase that was due before: the tenth wrong passcode erases before the
                // first step of adopting.
                #expect(plight == .toBeErased && error.code == .erased, "point \(point): \(error)")
                what = "erased"
            }
            #expect(what == "new" || !isDone, "acknowledged at point \(point): \(what)")
            #expect(what == "new" || isUntouched, "point \(point): a new keybag, and \(what)")
            seen.insert(what)
            // Adopting again finishes it from every state.
            let again = SimulatedKeyStorage(storage.afterPowerLoss(survival))
            try original.adopt(
                again, passcode: "again", state: SimulatedVolume.state, replaces: true,
                keysFrom: kitHolder)
            let store = try original.open(again, state: SimulatedVolume.state)
            #expect(store.attempts.triesLeft == 10)
            #expect(try store.allKeys("again") == original.keys, "point \(point)")
            if !storage.hasFailed { break }
        }
        #expect(seen.contains("old") && seen.contains("new"), "\(seen)")
    }

    @Test("whatever has become of the copy's keybag, and of what this device had")
    func plights() throws {
        let original = try Original(passcode: "old")
        let kitHolder = SimulatedKeyStorage(original.storage.afterPowerLoss(.everything))
        let firstKeybag = try #require(original.storage[SimulatedVolume.keybag])
        try original.volume.open().changePasscode(try passcode("old"), to: try passcode("later"))
        let directory = original.volume.directory
        let home = SimulatedVolume.state
        let cases: [(String, String, (SimulatedKeyStorage) -> Void)] = [
            (
                "an older keybag than this device remembers", home,
                { storage in
                    storage[SimulatedVolume.keybag] = firstKeybag
                    storage[SimulatedVolume.copy] = firstKeybag
                }
            ),
            (
                "no keybag at all", home,
                { storage in
                    storage[SimulatedVolume.keybag] = nil
                    storage[SimulatedVolume.copy] = nil
                }
            ),
            (
                "both damaged", home,
                { storage in
                    storage[SimulatedVolume.keybag]![90] ^= 1
                    storage[SimulatedVolume.copy] = [1, 2, 3]
                }
            ),
            ("erased", home, { $0[directory.effaceableKeyPath] = nil }),
            (
                "erased half-way", home,
                { storage in
                    storage[directory.effaceableKeyPath] = storage[directory.effaceableKeyPath]!
                        .map { _ in 0 }
                }
            ),
            ("device key lost", home, { $0[directory.deviceKeyPath] = nil }),
            ("device key garbled", home, { $0[directory.deviceKeyPath]![50] ^= 1 }),
            ("attempts lost", home, { $0[directory.attemptsPath] = nil }),
            ("another device", AdoptionTests.otherState, { _ in }),
            (
                "another device, no keybag", AdoptionTests.otherState,
                { storage in
                    storage[SimulatedVolume.keybag] = nil
                    storage[SimulatedVolume.copy] = nil
                }
            ),
            (
                "another device, one copy of the keybag cut off", AdoptionTests.otherState,
                {
                    $0[SimulatedVolume.keybag] = []
                }
            ),
        ]
        for text in ["new", nil] {
            for (name, state, damage) in cases {
                let storage = SimulatedKeyStorage(original.storage.afterPowerLoss(.everything))
                damage(storage)
                let adoption = try original.adopt(
                    storage, passcode: text, state: state, replaces: state == home,
                    keysFrom: kitHolder)
                let store = try original.open(storage, state: state)
                #expect(store.hasPasscode == (text != nil), "\(name)")
                #expect(try store.allKeys(text) == original.keys, "\(name)")
                #expect(store.attempts.triesLeft == 10, "\(name)")
                #expect(store.generation == adoption.generation, "\(name)")
                if state == home {
                    #expect(store.generation > 2, "above what it remembers: \(name)")
                }
                #expect(store.recovery.verified != nil && store.recovery.made != nil, "\(name)")
                // Neither the old volume nor a copy of it opens any more.
                if text != nil {
                    for old in ["old", "later"] {
                        let code = try original.open(storage, state: state).failure(opening: old)
                        guard case .wrongPasscode = code else {
                            Issue.record("\(name): \(old) gave \(String(describing: code))")
                            continue
                        }
                    }
                }
                let replayed = SimulatedKeyStorage(storage.afterPowerLoss(.everything))
                replayed[SimulatedVolume.keybag] = firstKeybag
                replayed[SimulatedVolume.copy] = firstKeybag
                #expect(
                    failure {
                        _ = try original.open(replayed, state: state, acceptsOlder: true)
                    } != nil, "\(name): an old keybag opens")
            }
        }
    }

    @Test("what is refused, and changes nothing")
    func refusals() throws {
        let original = try Original(passcode: "old")
        let other = try Original(passcode: "other")
        func unchanged(
            _ wanted: KeybagError.Code, _ body: (SimulatedKeyStorage) throws -> Void
        ) {
            let storage = SimulatedKeyStorage(original.storage.afterPowerLoss(.everything))
            #expect(failure { try body(storage) } == wanted)
            #expect(storage.operations == 0, "\(wanted)")
        }
        unchanged(.kitOfAnotherVolume) { try other.adopt($0) }
        unchanged(.deviceHasKeys(opensThis: true)) {
            try original.adopt($0, state: SimulatedVolume.state)
        }
        unchanged(.insideVolume) {
            try original.adopt($0, state: SimulatedVolume.volume + "/state")
        }
        // Keys that do not open this copy may open the volume that it was made of.
        let keybag = try #require(original.storage[SimulatedVolume.keybag])
        let kitHolder = SimulatedKeyStorage(original.storage.afterPowerLoss(.everything))
        try original.volume.open().changePasscode(try passcode("old"), to: try passcode("later"))
        original.storage[SimulatedVolume.keybag] = keybag
        original.storage[SimulatedVolume.copy] = keybag
        unchanged(.deviceHasKeys(opensThis: false)) {
            try original.adopt($0, state: SimulatedVolume.state, keysFrom: kitHolder)
        }
        // A later version made this keybag: its copy is not used, and nothing is written over it.
        var newer = keybag
        newer[8] = 3
        let body = Array(newer.dropLast(32))
        original.storage[SimulatedVolume.keybag] = KeybagEnvelope.seal(body)
        unchanged(.newerVersion) { try original.adopt($0, keysFrom: kitHolder) }
    }

    @Test("a generation that nobody authenticated is not counted on from")
    func plantedGeneration() throws {
        for planted in [UInt64.max, 1 << 62, 77] {
            let original = try Original(passcode: "old")
            let image = original.copied()
            let storage = SimulatedKeyStorage(image)
            var keybag = try Keybag(reading: try #require(storage[SimulatedVolume.keybag]))
            keybag.generation = planted
            storage[SimulatedVolume.keybag] = keybag.serialized
            let adoption = try original.adopt(storage)
            #expect(adoption.generation == (planted == 77 ? 78 : 2))
            #expect(try original.open(storage).allKeys("new") == original.keys)
        }
    }

    @Test("the policy stays where this device could read it, else it is the usual one")
    func policy() throws {
        let original = try Original(passcode: "old")
        let kitHolder = SimulatedKeyStorage(original.storage.afterPowerLoss(.everything))
        try original.volume.open().changePolicy(
            PolicyChange(gracePeriod: .seconds(77)), passcode: try passcode("old"))
        for (state, grace) in [(SimulatedVolume.state, 77), (AdoptionTests.otherState, 10)] {
            let storage = SimulatedKeyStorage(original.storage.afterPowerLoss(.everything))
            let adoption = try original.adopt(
                storage, state: state, replaces: true,
                policy: PolicyChange(erasesAfterTenWrongPasscodes: true), keysFrom: kitHolder)
            #expect(adoption.keptPolicy == (grace == 77))
            let policy = try original.open(storage, state: state).policy
            #expect(policy.gracePeriod == .seconds(grace))
            #expect(policy.erasesAfterTenWrongPasscodes)
        }
    }
}

/// The device's record of recovery kits.
@Suite("The record of recovery kits")
struct RecoveryRecordTests {
    @Test("it reads back, and every changed byte is seen")
    func record() throws {
        var record = RecoveryRecord(uuid: SystemRandom.bytes(16))
        #expect(try RecoveryRecord(reading: record.serialized) == record)
        record.made = .init(kitID: SystemRandom.bytes(16), time: 1_700_000_000)
        record.verified = .init(kitID: SystemRandom.bytes(16), time: 1_800_000_000)
        record.mac = SystemRandom.bytes(32)
        let bytes = record.serialized
        #expect(bytes.count == RecoveryRecord.bytes)
        #expect(try RecoveryRecord(reading: bytes) == record)
        for place in bytes.indices {
            var changed = bytes
            changed[place] ^= 1
            #expect(throws: FormatError.self) { try RecoveryRecord(reading: changed) }
        }
        #expect(throws: FormatError.self) { try RecoveryRecord(reading: Array(bytes.dropLast())) }
    }

    @Test("made, opened, and a year later")
    func standing() {
        let day = Duration.seconds(24 * 3600)
        let start = Duration.seconds(1_700_000_000)
        #expect(RecoveryHistory().standing(now: start) == .none)
        let made = RecoveryHistory(made: start)
        #expect(made.standing(now: start) == .current)
        #expect(made.standing(now: start + day * 365) == .current)
        #expect(made.standing(now: start + day * 366) == .unverified)
        let verified = RecoveryHistory(made: start, verified: start + day * 300)
        #expect(verified.standing(now: start + day * 366) == .current)
        #expect(verified.standing(now: start + day * 700) == .unverified)
        #expect(RecoveryHistory(verified: start).standing(now: start) == .current)
        #expect(made.standing(now: start - day * 1000) == .current, "a clock that was wrong")
    }

    @Test("init and create note a kit, verifying does, and nobody else can")
    func noted() throws {
        let disk = try DiskVolume(passcode: "1234", withKit: true)
        defer { disk.remove() }
        let store = try disk.open()
        let made = try #require(store.recovery.made)
        #expect(store.recovery.standing(now: SystemClock.sinceEpoch()) == .current)
        #expect(abs((SystemClock.sinceEpoch() - made).components.seconds) < 100)
        #expect(store.recovery.verified == nil)
        let path = store.stateDirectory.recoveryPath
        let noted = try disk.verifyKit()
        #expect(noted)
        #expect(store.recovery.verified == nil, "as it was read last")
        store.reloadRecovery()
        #expect(store.recovery.verified != nil && store.recovery.made == made)

        // Forged: the checksum is right, the MAC is made with another key.
        var record = try RecoveryRecord(reading: try DiskKeyStorage().readBytes(path, limit: 200))
        record.made?.time += 1
        try DiskKeyStorage().replace(path, with: record.serialized, isPublic: false)
        store.reloadRecovery()
        #expect(store.recovery == RecoveryHistory(), "a forged record says nothing")
        unlink(path)
        #expect(try disk.open().recovery == RecoveryHistory(), "nor does a lost one")
        let kit = disk.root + "/second"
        _ = try disk.open().createRecoveryKit(passcode: try passcode("1234"), at: kit)
        #expect(try disk.open().recovery.made != nil)
        unlink(kit)

        // A device without a key for the volume remembers nothing.
        rename(disk.state, disk.state + "-away")
        let notedElsewhere = try disk.verifyKit()
        #expect(!notedElsewhere)
        rename(disk.state + "-away", disk.state)
    }

    @Test(
        "the power goes while it is written: the old or the new note",
        arguments: SimulatedKeyStorage.Survival.allCases)
    func everyCrashPoint(survival: SimulatedKeyStorage.Survival) throws {
        let original = try AdoptionTests.Original(passcode: nil)
        let image = original.storage.afterPowerLoss(.everything)
        let before = try original.volume.open().recovery
        var seen: Set<Bool> = []
        for point in 0... {
            let storage = SimulatedKeyStorage(image, failingAt: point)
            let keys = try original.opened(original.storage)
            let isDone =
                (try? KeybagStore.noteVerified(keys, stateRoot: SimulatedVolume.state, storage))
                != nil
            let later = try original.volume.open(
                SimulatedKeyStorage(storage.afterPowerLoss(survival)))
            let isNew = later.recovery.verified != nil
            #expect(later.recovery.made == before.made)
            #expect(isNew || !isDone, "point \(point)")
            seen.insert(isNew)
            if !storage.hasFailed { break }
        }
        #expect(seen == [false, true])
    }
}

extension DiskVolume {
    /// Verifies the kit as `ward recovery verify` does. Returns whether the device noted it.
    func verifyKit() throws -> Bool {
        let code = try RecoveryCode(text: try secret(Array(shownCode.utf8)))
        let keys = try KeybagStore.openRecoveryKit(at: kit, code: code)
        try KeybagStore.compare(keys, volumePath: volume, stateRoot: state)
        return try KeybagStore.noteVerified(keys, stateRoot: state)
    }
}

@Suite("Typing one group of a code again")
struct RetypingTests {
    @Test("a mistyped group is replaced, whatever stands between the groups")
    func retyping() throws {
        let code = try RecoveryCode.random()
        let written = String(decoding: try code.text().exposed(), as: UTF8.self)
        for group in 1...13 {
            let groups = written.split(separator: "-").map(String.init)
            var mistyped = groups
            mistyped[group - 1] = groups[group % 13]
            let text = try secret(Array(mistyped.joined(separator: " ").utf8))
            for spelling in [groups[group - 1], groups[group - 1].lowercased() + "\n"] {
                let typed = try secret(Array(spelling.utf8))
                let whole = try RecoveryCode.retyping(group: group, as: typed, in: text)
                guard let whole else {
                    Issue.record("group \(group) was not taken")
                    return
                }
                let again = try RecoveryCode(text: whole)
                let isSame = again.withSecret { $0.exposed() } == code.withSecret { $0.exposed() }
                #expect(isSame)
            }
            for bad in ["", "ABCD", "ABCDEF", "ABCDE ABCDE"] {
                let isTaken =
                    try RecoveryCode.retyping(
                        group: group, as: try secret(Array((bad + " ").utf8)), in: text) != nil
                #expect(!isTaken, "\(bad)")
            }
        }
    }
}
