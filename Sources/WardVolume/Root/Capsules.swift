import Glibc
import Synchronization
import WardCrypto
import WardFormat
import WardKeys
import WardSystem

/// The directory `ward.kem`: capsules, and the public key to which they are made (docs/format.md
/// §3.1). Their secrets are in the keys of class B files.
///
/// A mount makes one capsule, when it begins. A capsule that no file got goes when the volume
/// closes.
///
/// Concurrency: any thread; `state` guards what is known. It is not held during calls to the store,
/// except by `begin`, which runs once at a time.
final class Capsules: Sendable {
    private struct State {
        /// The capsule of new keys.
        var present: Capsule?
        /// The public key to which `present` was made.
        var publicKey: [UInt8]?
        /// Capsules of files that were opened, by ID.
        var known: [[UInt8]: Capsule] = [:]
    }

    /// Kept, because its root is open as long as it lives.
    private let store: BackingStore
    private let keyring: ClassKeyring
    private let publicKeyMAC: SecretBytes
    private let reporter: Reporter
    private let state = Mutex(State())
    /// Held by `begin` from its first to its last call to the store.
    private let beginning = Lock(.capsules)
    /// A capsule has a kilobyte.
    private static let mostKnown = 256

    /// The capsules of a volume of format 2, with class B's keys bound to the volume; nil in format
    /// 1. Throws where no memory can be locked.
    static func forFormat2(
        _ store: BackingStore, _ keys: VolumeKeys, _ keyring: ClassKeyring, _ reporter: Reporter
    ) throws(VolumeOpenError) -> Capsules? {
        guard keys.format >= .version2 else { return nil }
        return try VolumeRoot.call(store.path, "no memory could be locked for keys") {
            () throws(Errno) in
            keyring.bindClassB(to: try keys.classB.copy())
            return Capsules(store, keyring, reporter, publicKeyMAC: try keys.capsules.copy())
        }
    }

    private init(
        _ store: BackingStore, _ keyring: ClassKeyring, _ reporter: Reporter,
        publicKeyMAC: consuming SecretBytes
    ) {
        self.store = store
        self.keyring = keyring
        self.reporter = reporter
        self.publicKeyMAC = publicKeyMAC
    }

    // MARK: Making

    /// Makes the capsule of new keys, and the file of the public key where it is missing and class
    /// A's key is in memory. Called when the volume was opened for writing, and after each unlock:
    /// then a public key that is not ours is replaced, and reported.
    ///
    /// Without a capsule, class B's keys rest on X25519 and the volume key alone: that is told.
    func begin() {
        beginning.withLock {
            do throws(Errno) {
                try makePresent()
            } catch {
                reporter.report(
                    .note(
                        "no capsule could be made for class B: \(error). "
                            + "A quantum computer would open files of class B that are made from "
                            + "now on, for a person who has the device's files"
                    ))
            }
        }
    }

    private func makePresent() throws(Errno) {
        guard let publicKey = try currentPublicKey(),
            state.withLock({ $0.publicKey }) != publicKey
        else { return }
        var ciphertext: [UInt8] = []
        let secret: SecretBytes
        do throws(CryptoError) {
            secret = try MLKEM768.encapsulate(to: publicKey, ciphertext: &ciphertext)
        } catch {
            throw error == .outOfLockedMemory ? .noMemory : .ioError
        }
        let capsule = Capsule(ciphertext)
        try withDirectory(makes: true) { directory throws(Errno) in
            try write(capsule.ciphertext, Capsule.fileName(capsule.id), directory)
        }
        state.withLock { state in
            state.present = capsule
            state.publicKey = publicKey
            state.known[capsule.id] = capsule
        }
        if let unused = keyring.useCapsule(capsule.id, secret: secret) { remove(unused) }
    }

    /// The public key to which capsules have to be made; nil where it is not known yet. While class
    /// A's key is in memory, the file is made to have it.
    private func currentPublicKey() throws(Errno) -> [UInt8]? {
        let own: [UInt8]?
        do throws(KeyringError) {
            own = try keyring.capsulePublicKey()
        } catch .unavailable {
            own = nil
        } catch {
            throw .noMemory
        }
        if let own, state.withLock({ $0.publicKey }) == own { return own }
        guard let own else { return try storedPublicKey() }
        // Another thing in the file's place, or a file that can't be read, is replaced.
        let stored = (try? storedPublicKey()) ?? nil
        if stored == own { return own }
        if stored != nil {
            reporter.report(
                .integrityFailure(
                    path: "/\(Capsule.directoryName)/\(Capsule.publicKeyName)",
                    reason: "the public key is not this volume's: it is replaced"))
        }
        try withDirectory(makes: true) { directory throws(Errno) in
            try write(
                own + HMACSHA256.authenticate(own, key: publicKeyMAC), Capsule.publicKeyName,
                directory)
        }
        return own
    }

    /// The public key that is stored; nil where there is none, or no authentic one.
    private func storedPublicKey() throws(Errno) -> [UInt8]? {
        let bytes: [UInt8]
        do throws(Errno) {
            bytes = try read(
                Capsule.publicKeyName, limit: MLKEM768.publicKeyBytes + HMACSHA256.bytes)
        } catch .noSuchFileOrDirectory {
            return nil
        }
        guard bytes.count == MLKEM768.publicKeyBytes + HMACSHA256.bytes else { return nil }
        let isAuthentic = bytes.withUnsafeBytes {
            HMACSHA256.verify(
                $0[MLKEM768.publicKeyBytes...],
                of: UnsafeRawBufferPointer(rebasing: $0[..<MLKEM768.publicKeyBytes]),
                key: publicKeyMAC)
        }
        return isAuthentic ? Array(bytes[..<MLKEM768.publicKeyBytes]) : nil
    }

    // MARK: Using

    /// The capsule with this ID, if it was read or made before. Calls no store.
    func known(_ id: [UInt8]) -> Capsule? { state.withLock { $0.known[id] } }

    /// Reads the capsule that a header names. Nil where it is missing or damaged: then the file's
    /// key does not unwrap.
    func fetch(_ id: [UInt8]) -> Capsule? {
        guard id != Capsule.noID else { return nil }
        if let known = known(id) { return known }
        guard let bytes = try? read(Capsule.fileName(id), limit: MLKEM768.ciphertextBytes),
            let capsule = try? Capsule(reading: bytes, id: id)
        else { return nil }
        state.withLock { state in
            if state.known.count >= Capsules.mostKnown {
                state.known = state.known.filter { $0.key == state.present?.id }
            }
            state.known[id] = capsule
        }
        return capsule
    }

    /// Returns the capsules whose file does not have the name that its content gives: their stored
    /// names and IDs. None where there is no directory.
    func misnamed() throws(Errno) -> [(stored: [CChar], id: [UInt8])] {
        do throws(Errno) {
            return try withDirectory(makes: false) { directory throws(Errno) in
                var names: [[CChar]] = []
                try storage.list(directory) { names.append($0.name.zeroTerminated) }
                return names.compactMap { stored in
                    guard let id = capsuleID(of: stored, directory) else { return nil }
                    let right = Array(Capsule.fileName(id).utf8CString)
                    return right == stored ? nil : (stored, id)
                }
            }
        } catch .noSuchFileOrDirectory {
            return []
        }
    }

    /// The ID of the capsule in a file; nil where it has not the size of one.
    private func capsuleID(of stored: [CChar], _ directory: Int32) -> [UInt8]? {
        let bytes = try? stored.withUnsafeBufferPointer { name throws(Errno) in
            try read(name.baseAddress!, limit: MLKEM768.ciphertextBytes, in: directory)
        }
        guard let bytes, bytes.count == MLKEM768.ciphertextBytes else { return nil }
        return Capsule(bytes).id
    }

    /// Gives a capsule's file the name that its content gives, durably. Throws `EEXIST` where
    /// another file has it.
    func rename(_ stored: [CChar], toNameOf id: [UInt8]) throws(Errno) {
        try withDirectory(makes: false) { directory throws(Errno) in
            let right = Array(Capsule.fileName(id).utf8CString)
            try stored.withUnsafeBufferPointer { old throws(Errno) in
                try right.withUnsafeBufferPointer { new throws(Errno) in
                    try storage.renameat(
                        directory, old.baseAddress!, directory, new.baseAddress!,
                        flags: renameNoReplace)
                }
            }
            try storage.fsync(directory)
        }
    }

    /// Removes the capsule of this mount if no file got it. Called when no more files are written.
    func end() {
        if let unused = keyring.giveUpUnusedCapsule() { remove(unused) }
    }

    /// A file that can't be removed stays. It harms nothing.
    private func remove(_ id: [UInt8]) {
        try? withDirectory(makes: false) { directory throws(Errno) in
            try storage.unlinkat(directory, Capsule.fileName(id), 0)
        }
    }

    // MARK: Files

    private var storage: any Storage { store.storage }

    private func withDirectory<R>(
        makes: Bool, _ body: (Int32) throws(Errno) -> R
    ) throws(Errno) -> R {
        try store.withOwnDirectory(Capsule.directoryName, makes: makes, body)
    }

    /// Writes a new file, syncs it, renames it and syncs the directory.
    private func write(_ bytes: [UInt8], _ name: String, _ directory: Int32) throws(Errno) {
        try VolumeRoot.writeFile(name, bytes, directory, storage)
    }

    /// Reads a whole file, `limit` bytes and one more at most.
    private func read(_ name: String, limit: Int) throws(Errno) -> [UInt8] {
        try withDirectory(makes: false) { directory throws(Errno) in
            try read(name, limit: limit, in: directory)
        }
    }

    private func read(
        _ name: UnsafePointer<CChar>, limit: Int, in directory: Int32
    ) throws(Errno) -> [UInt8] {
        let file = try storage.openat(
            directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, mode: 0)
        defer { storage.close(file) }
        var bytes = [UInt8](repeating: 0, count: limit + 1)
        let got = try bytes.withUnsafeMutableBufferPointer { out throws(Errno) in
            try storage.pread(file, out.baseAddress!, out.count, at: 0)
        }
        return Array(bytes.prefix(got))
    }
}
