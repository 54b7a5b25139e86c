import Synchronization
import Testing
import WardFormat
import WardSystem

@testable import WardKeys

/// Operations that fail once and then work again, as with no descriptor left or a full disk; and
/// changes by another process between two reads.
@Suite("Errors that pass")
struct StorageErrorTests {
    enum Operation: Equatable, Sendable {
        case read, write, wipe, lock
    }

    /// `SimulatedKeyStorage`, with the errors that `intercept` throws.
    private final class Storage: KeyStorage {
        let inner: SimulatedKeyStorage
        let intercept: @Sendable (Operation, String) throws(Errno) -> Void

        init(
            _ inner: SimulatedKeyStorage,
            _ intercept: @escaping @Sendable (Operation, String) throws(Errno) -> Void
        ) {
            self.inner = inner
            self.intercept = intercept
        }

        func read(_ path: String, limit: Int) throws(Errno) -> SecretBytes {
            try intercept(.read, path)
            return try inner.read(path, limit: limit)
        }
        func write(_ path: String, _ bytes: UnsafeRawBufferPointer, isPublic: Bool) throws(Errno) {
            try intercept(.write, path)
            try inner.write(path, bytes, isPublic: isPublic)
        }
        func sync(_ path: String) throws(Errno) { try inner.sync(path) }
        func rename(_ path: String, to target: String) throws(Errno) {
            try inner.rename(path, to: target)
        }
        func remove(_ path: String) throws(Errno) { try inner.remove(path) }
        func openForWiping(_ path: String) throws(Errno) -> Int32? {
            try inner.openForWiping(path)
        }
        func wipe(_ descriptor: Int32) throws(Errno) {
            try intercept(.wipe, "")
            try inner.wipe(descriptor)
        }
        func close(_ descriptor: Int32) { inner.close(descriptor) }
        func lock(_ path: String) throws(Errno) -> Int32? {
            try intercept(.lock, path)
            return nil
        }
        func unlock(_ descriptor: Int32) {}
        func makeDirectory(_ path: String) throws(Errno) { try inner.makeDirectory(path) }
    }

    private func open(_ storage: any KeyStorage, _ clock: DeviceClock = .system) throws
        -> KeybagStore
    {
        try KeybagStore(
            volumePath: SimulatedVolume.volume, stateRoot: SimulatedVolume.state, clock: clock,
            storage: storage)
    }

    /// The keybag is the new one, but it can't be read back, so the change stops without knowing
    /// which it is. Taking the new effaceable key back then would leave a volume that nothing opens
    /// (row L7).
    @Test("a change whose keybag can't be read back keeps both keys", arguments: [false, true])
    func unreadableKeybag(copyWritten: Bool) throws {
        let volume = try SimulatedVolume(passcode: "old")
        let failing = copyWritten ? volume.directory.rememberedPath : SimulatedVolume.copy
        let keys = try volume.open().allKeys("old")
        let isFailing = Atomic(false)
        let store = try open(
            Storage(volume.storage) { operation, path throws(Errno) in
                if operation == .write, path.hasPrefix(failing) {
                    isFailing.store(true, ordering: .relaxed)
                    throw Errno(rawValue: 24 /* EMFILE */)
                }
                if operation == .read, path == SimulatedVolume.keybag,
                    isFailing.exchange(false, ordering: .relaxed)
                {
                    throw Errno(rawValue: 24)
                }
            })
        #expect(throws: KeybagError.self) {
            try store.changePasscode(try passcode("old"), to: try passcode("new"))
        }
        let later = try volume.open()
        #expect(try later.allKeys("new") == keys)
        #expect(try later.failure(opening: "old") == .wrongPasscode(triesLeft: 9))
    }

    @Test("a change of another process between the first look and the lock is no damage")
    func changedBetweenLooks() throws {
        let volume = try SimulatedVolume(passcode: "old")
        let before = [SimulatedVolume.keybag, SimulatedVolume.copy].map { volume.storage[$0] }
        try volume.open().changePasscode(try passcode("old"), to: try passcode("new"))
        let after = [SimulatedVolume.keybag, SimulatedVolume.copy].map { volume.storage[$0] }
        // A read in the middle of the change: the keybag is the old one, the keys beside it are
        // already the new ones.
        volume.storage[SimulatedVolume.keybag] = before[0]
        volume.storage[SimulatedVolume.copy] = before[1]
        let inner = volume.storage
        let storage = Storage(inner) { operation, _ throws(Errno) in
            guard operation == .lock else { return }
            inner[SimulatedVolume.keybag] = after[0]
            inner[SimulatedVolume.copy] = after[1]
        }
        #expect(try open(storage).failure(opening: "new") == nil)
    }

    @Test("an erase at the tenth that failed is done at the next try (L6)")
    func eraseFailed() throws {
        let volume = try SimulatedVolume(passcode: "right")
        let clock = TestClock()
        let isFailing = Atomic(false)
        let store = try open(
            Storage(volume.storage) { operation, _ throws(Errno) in
                if operation == .wipe, isFailing.exchange(false, ordering: .relaxed) {
                    throw .ioError
                }
            }, clock.device())
        try store.changePolicy(
            PolicyChange(erasesAfterTenWrongPasscodes: true), passcode: try passcode("right"))
        for number in 1...9 {
            #expect(
                try store.failure(opening: "\(number)") == .wrongPasscode(triesLeft: 10 - number))
            clock.advance(.seconds(8 * 3600))
        }
        isFailing.store(true, ordering: .relaxed)
        #expect(try store.failure(opening: "10") == .system(.ioError))
        #expect(try store.failure(opening: "right") == .erased)
        #expect(volume.storage[volume.directory.effaceableKeyPath] == nil)
    }

    @Test("keys move from one keyring to another, and none stays")
    func moveKeys() throws {
        let publicKey = [UInt8](repeating: 9, count: 32)
        let (from, to) = (
            ClassKeyring(classBPublicKey: publicKey), ClassKeyring(classBPublicKey: publicKey)
        )
        for (index, protectionClass) in ProtectionClass.allCases.enumerated() where index != 3 {
            from.install(
                try secret([UInt8](repeating: UInt8(index), count: 32)), for: protectionClass)
        }
        let moved = from.available
        from.move(to: to)
        #expect(from.available.isEmpty && to.available == moved)
        for (index, protectionClass) in ProtectionClass.allCases.enumerated() where index != 3 {
            #expect(
                try to.withKey(of: protectionClass) { $0.exposed() }
                    == [UInt8](repeating: UInt8(index), count: 32))
            #expect(throws: KeyringError.unavailable) {
                try from.withKey(of: protectionClass) { $0.exposed() }
            }
        }
    }
}
