import Glibc
import Synchronization
import Testing
import WardFormat
import WardSystem

@testable import WardKeys

/// Rows L5 and L6 with concurrent processes, restarts, power cuts and changed files.
@Suite("Counting attempts")
struct AttemptTests {
    private func path(_ volume: SimulatedVolume) -> String { volume.directory.attemptsPath }

    @Test("the same wrong passcode counts once across processes and restarts (L5)")
    func acrossProcesses() throws {
        let volume = try SimulatedVolume(passcode: "right")
        let clock = TestClock()
        for round in 0..<12 {
            let store = try volume.open(clock: clock.device(identity: UInt8(round)))
            try store.restartPasscodeDelay()
            #expect(try store.failure(opening: "stale") == .wrongPasscode(triesLeft: 9))
        }
        #expect(try volume.open().failure(opening: "other") == .wrongPasscode(triesLeft: 8))
        #expect(try volume.open().failure(opening: "right") == nil)
        #expect(try volume.open().failure(opening: "stale") == .wrongPasscode(triesLeft: 9))
    }

    @Test("many at once, in processes of their own: each counted once, never more than allowed")
    func sideBySide() throws {
        let disk = try DiskVolume(passcode: "right")
        defer { disk.remove() }
        let (path, state) = (disk.volume, disk.state)
        let outcomes = Outcomes()
        let threads = (0..<12).map { number in
            SystemThread.start("attempt") {
                // Each thread has its own store, as each process has; they share only flock(2).
                for guess in ["same", "guess \(number % 3)"] {
                    let store = try? KeybagStore(volumePath: path, stateRoot: state)
                    let code: KeybagError.Code?? = try? store?.failure(opening: guess)
                    outcomes.all.withLock { $0.append(code ?? nil) }
                }
            }
        }
        for thread in threads { thread.join() }
        let store = try disk.open()
        let all = outcomes.all.withLock { $0 }
        #expect(store.attempts.wrongPasscodes == 4, "\(all)")
        for left in 6...9 { #expect(all.contains(.wrongPasscode(triesLeft: left)), "\(all)") }
        for code in all {
            switch code {
            case .wrongPasscode(let left): #expect(left >= 6)
            case .tryLater: break
            default: Issue.record("\(code as Any)")
            }
        }
        guard case .tryLater = try store.failure(opening: "right") else {
            Issue.record("four wrong passcodes and no delay")
            return
        }
    }

    private final class Outcomes: Sendable {
        let all = Mutex<[KeybagError.Code?]>([])
    }

    /// The power goes at each point while the right passcode is the tenth try: it must open
    /// afterwards.
    @Test(
        "a power cut while the right passcode is tried never disables or erases",
        arguments: SimulatedKeyStorage.Survival.allCases, [false, true])
    func rightOneInterrupted(survival: SimulatedKeyStorage.Survival, erases: Bool) throws {
        let volume = try SimulatedVolume(passcode: "right")
        let clock = TestClock()
        let store = try volume.open(clock: clock.device())
        try store.changePolicy(
            PolicyChange(erasesAfterTenWrongPasscodes: erases), passcode: try passcode("right"))
        for number in 1...9 {
            _ = try store.failure(opening: "\(number)")
            clock.advance(.seconds(8 * 3600))
        }
        let image = volume.storage.afterPowerLoss(.everything)
        var sawPending = false
        for point in 0..<40 {
            let storage = SimulatedKeyStorage(image, failingAt: point)
            _ = try? volume.open(storage, clock: clock.device()).failure(opening: "right")
            let later = storage.afterPowerLoss(survival)
            let owner = try volume.open(SimulatedKeyStorage(later), clock: clock.device())
            #expect(try owner.failure(opening: "right") == nil, "point \(point)")
            let guesser = try volume.open(SimulatedKeyStorage(later), clock: clock.device())
            guard guesser.attempts.triesLeft == 0 else { continue }
            sawPending = true
            #expect(try guesser.failure(opening: "11") == .disabled, "point \(point)")
            #expect(try guesser.failure(opening: "right") == nil, "point \(point)")
            if !storage.hasFailed { break }
        }
        #expect(sawPending)
    }

    @Test("an erase at the tenth that a power cut interrupted is finished by whoever opens")
    func eraseInterrupted() throws {
        let volume = try SimulatedVolume(passcode: "right")
        let clock = TestClock()
        let store = try volume.open(clock: clock.device())
        try store.changePolicy(
            PolicyChange(erasesAfterTenWrongPasscodes: true), passcode: try passcode("right"))
        for number in 1...9 {
            _ = try store.failure(opening: "\(number)")
            clock.advance(.seconds(8 * 3600))
        }
        let image = volume.storage.afterPowerLoss(.everything)
        var sawErased = false
        for point in 0... {
            let storage = SimulatedKeyStorage(image, failingAt: point)
            _ = try? volume.open(storage, clock: clock.device()).failure(opening: "10")
            let later = SimulatedKeyStorage(storage.afterPowerLoss(.onlyWhatWasSynced))
            var found: KeybagError.Code?
            do throws(KeybagError) {
                let store = try volume.open(later, clock: clock.device())
                found = try? store.failure(opening: "10")
            } catch {
                found = error.code
            }
            #expect(found == .erased, "point \(point)")
            let left = later[volume.directory.effaceableKeyPath] ?? []
            #expect(left.allSatisfy { $0 == 0 }, "point \(point)")
            sawErased = true
            if !storage.hasFailed { break }
        }
        #expect(sawErased)
    }

    @Test(
        "a boot starts a delay again that still ran, and none that was over (L6)",
        arguments: [59, 60])
    func delayOverBeforeBoot(waited: Int) throws {
        let volume = try SimulatedVolume(passcode: "right")
        let clock = TestClock()
        let store = try volume.open(clock: clock.device(identity: 1))
        for number in 1...4 { _ = try store.failure(opening: "\(number)") }
        clock.advance(.seconds(waited))
        try store.notePasscodeDelay()
        let next = try volume.open(clock: clock.device(identity: 2))
        try next.restartPasscodeDelay()
        #expect(
            try next.failure(opening: "right") == (waited < 60 ? .tryLater(.seconds(60)) : nil))
        guard waited == 60 else { return }
        #expect(try next.failure(opening: "4") == .wrongPasscode(triesLeft: 9))
    }

    // MARK: Tampering

    @Test(
        "a ledger that is missing, damaged or forged counts as nine, not as none",
        arguments: ["missing", "empty", "cut", "zeros", "a bit", "no attempts, checksum right"])
    func ledgerDamaged(_ damage: String) throws {
        let volume = try SimulatedVolume(passcode: "right")
        let clock = TestClock()
        let store = try volume.open(clock: clock.device())
        for wrong in ["a", "b"] { _ = try store.failure(opening: wrong) }
        let good = try #require(volume.storage[path(volume)])
        volume.storage[path(volume)] =
            switch damage {
            case "missing": nil
            case "empty": []
            case "cut": Array(good.dropLast(9))
            case "zeros": good.map { _ in 0 }
            case "a bit": good.indices.map { $0 == 10 ? good[$0] ^ 1 : good[$0] }
            default: resummed(good) { $0[10] = 0 }
            }
        // The running daemon sees the damage, too.
        #expect(try store.failure(opening: "right") == .tryLater(.seconds(8 * 3600)))
        clock.advance(.seconds(3600))
        let again = try volume.open(clock: clock.device())
        #expect(try again.failure(opening: "right") == .tryLater(.seconds(7 * 3600)))
        clock.advance(.seconds(7 * 3600))
        #expect(again.attempts.triesLeft == 1)
        #expect(try again.failure(opening: "right") == nil, "the owner gets in")
        #expect(try again.failure(opening: "a") == .wrongPasscode(triesLeft: 9))
    }

    @Test("a newer ledger is not taken for damage, another volume's is")
    func otherLedgers() throws {
        let volume = try SimulatedVolume(passcode: "right")
        let good = try #require(volume.storage[path(volume)])
        volume.storage[path(volume)] = resummed(good) { $0[8] = 3 }
        #expect(code { () throws(KeybagError) in _ = try volume.open() } == .newerVersion)
        let other = try SimulatedVolume(passcode: "right")
        volume.storage[path(volume)] = other.storage[path(other)]
        #expect(try volume.open().attempts.triesLeft == 1)
    }

    @Test("neither an older keybag nor an older copy of the volume wins attempts back (L5)")
    func rolledBack() throws {
        let volume = try SimulatedVolume(passcode: "right")
        let clock = TestClock()
        let old = try #require(volume.storage[SimulatedVolume.keybag])
        let store = try volume.open(clock: clock.device())
        for number in 1...10 {
            _ = try store.failure(opening: "\(number)")
            clock.advance(.seconds(8 * 3600))
        }
        volume.storage[SimulatedVolume.keybag] = old
        volume.storage[SimulatedVolume.copy] = old
        for accepts in [false, true] {
            let again = try volume.open(clock: clock.device(), acceptsOlderGeneration: accepts)
            #expect(try again.failure(opening: "right") == .disabled)
        }
    }

    @Test(
        "the right passcode that failed on a forged keybag opens the true one again",
        arguments: VolumeFormat.allCases)
    func forgedSlot(format: VolumeFormat) throws {
        let volume = try SimulatedVolume(passcode: "right", format: format)
        let clock = TestClock()
        let own = try #require(volume.storage[SimulatedVolume.keybag])
        try volume.forgePasscodeSlot()
        let forged = try #require(volume.storage[SimulatedVolume.keybag])
        // The attacker's keybag takes one try, also after a restart.
        for round in 0..<3 {
            let store = try volume.open(clock: clock.device(identity: UInt8(round)))
            #expect(try store.failure(opening: "right") == .wrongPasscode(triesLeft: 9))
        }
        func put(_ keybag: [UInt8]) {
            volume.storage[SimulatedVolume.keybag] = keybag
            volume.storage[SimulatedVolume.copy] = keybag
        }
        put(own)
        let restored = try volume.open(clock: clock.device())
        #expect(try restored.failure(opening: "wrong") == .wrongPasscode(triesLeft: 8))
        #expect(try restored.failure(opening: "wrong") == .wrongPasscode(triesLeft: 8))
        #expect(try restored.failure(opening: "right") == nil)
        #expect(restored.attempts.triesLeft == 10)
        // With a daemon that still has the true keybag, too.
        put(forged)
        #expect(
            try volume.open(clock: clock.device()).failure(opening: "right")
                == .wrongPasscode(triesLeft: 9))
        #expect(try restored.failure(opening: "right") == nil)
    }

    @Test("a ledger reads back, and nothing else does")
    func record() throws {
        var record = AttemptRecord(
            uuid: SystemRandom.bytes(16), wrongPasscodes: 3, clockIdentity: SystemRandom.bytes(16),
            delayEndNanoseconds: 77)
        record.tags = [SystemRandom.bytes(16), SystemRandom.bytes(16)]
        record.lastIsPending = true
        record.mac = SystemRandom.bytes(32)
        #expect(record.serialized.count == AttemptRecord.bytes)
        #expect(try AttemptRecord(reading: record.serialized) == record)
        for (offset, value) in [(12, UInt8(11)), (12, 0), (14, 2), (90, 1), (215, 1)] {
            let bad = resummed(record.serialized) { $0[offset] = value }
            #expect(throws: FormatError.self, "\(offset) is \(value)") {
                try AttemptRecord(reading: bad)
            }
        }
    }
}
