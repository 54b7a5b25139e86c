import Foundation
import Testing
import WardCrypto
import WardFormat
import WardKeys
import WardSystem

@testable import WardVolume

/// Format 2: keys of class B files need a capsule and the volume key (docs/format.md §3.1).
@Suite("Capsules")
struct CapsuleTests {
    private func capsules(_ harness: VolumeHarness) throws -> [String] {
        let path = harness.directory + "/" + Capsule.directoryName
        return try FileManager.default.contentsOfDirectory(atPath: path)
            .filter { $0 != Capsule.publicKeyName }.sorted()
    }

    private func url(_ name: String, _ harness: VolumeHarness) -> URL {
        URL(fileURLWithPath: harness.directory + "/" + Capsule.directoryName + "/" + name)
    }

    /// Makes a class B file while the volume is locked, and closes it.
    private func writeLocked(_ name: String, _ harness: VolumeHarness) throws {
        harness.lock()
        let (_, handle) = try harness.create(name)
        try harness.write(handle, 0, Array("inbox".utf8))
        harness.volume.release(handle, harness.context)
        try harness.unlock()
        harness.volume.background.drain()
    }

    private func content(_ name: String, _ harness: VolumeHarness) throws(Errno) -> [UInt8] {
        let handle = try harness.open(harness.lookup(name).node)
        defer { harness.volume.release(handle, harness.context) }
        return try harness.read(handle, 0, 100)
    }

    private func header(_ name: String, _ harness: VolumeHarness) throws -> FileHeader {
        let node = harness.volume.node(try harness.lookup(name).node)
        let file = try harness.volume.acquire(node, harness.context).file
        defer { harness.volume.release(file, harness.context) }
        return try #require(file.header)
    }

    private func classB(_ pageBytes: Int = 4096) throws -> VolumeHarness {
        try VolumeHarness(
            pageBytes: pageBytes, format: .version2, defaultClass: .completeUnlessOpen)
    }

    @Test("files made while locked are read after the unlock, and after a remount")
    func lifecycle() throws {
        let harness = try classB()
        let first = try capsules(harness)
        #expect(first.count == 1)
        try writeLocked("a", harness)
        try writeLocked("b", harness)
        #expect(try capsules(harness) == first, "one for each mount")
        let ids = try ["a", "b"].map { try header($0, harness).capsuleID }
        #expect(Set(ids).count == 1 && Capsule.fileName(ids[0]) == first[0])
        #expect(try content("a", harness) == Array("inbox".utf8))

        try harness.reopen()
        #expect(try capsules(harness).count == 2)
        #expect(try content("b", harness) == Array("inbox".utf8))
        try writeLocked("c", harness)
        #expect(try header("c", harness).capsuleID != ids[0])
        #expect(try content("c", harness) == Array("inbox".utf8))
        #expect(try content("a", harness) == Array("inbox".utf8))
        #expect(harness.events.integrityFailures == [])
    }

    @Test("a capsule that no file got goes with the mount, and one that is used stays")
    func unused() throws {
        let harness = try classB()
        try harness.volume.close()
        #expect(try capsules(harness) == [])
        try harness.reopen(clean: false)
        try writeLocked("a", harness)
        let used = try capsules(harness)
        try harness.volume.close()
        #expect(try capsules(harness) == used)
        try harness.reopen(clean: false)
        #expect(try content("a", harness) == Array("inbox".utf8))
    }

    @Test("neither the pair of class B nor the volume key nor the capsule suffices alone")
    func allThree() throws {
        let harness = try classB()
        try writeLocked("a", harness)
        let header = try header("a", harness)
        let capsule = try Capsule(
            reading: Array(try Data(contentsOf: url(Capsule.fileName(header.capsuleID), harness))),
            id: header.capsuleID)
        /// Whether a ring with these keys opens the file's key.
        func opens(hasA: Bool, hasVolumeKey: Bool, _ capsule: Capsule?) throws -> Bool {
            let b = try secret(harness.classKeys[.completeUnlessOpen]!)
            let ring = ClassKeyring(classBPublicKey: publicKey(b))
            ring.install(b, for: .completeUnlessOpen)
            let a = try hasA ? secret(harness.classKeys[.complete]!) : SecretBytes(random: 32)
            ring.install(a, for: .complete)
            ring.bindClassB(
                to: try hasVolumeKey
                    ? harness.volume.keys.classB.copy() : SecretBytes(random: 32))
            return header.wrappedKey.withUnsafeBytes {
                (try? ring.unwrap($0, for: .completeUnlessOpen, capsule: capsule).count) == 32
            }
        }
        #expect(try opens(hasA: true, hasVolumeKey: true, capsule))
        // A quantum computer finds B's private half, and has the device's files.
        #expect(try !opens(hasA: false, hasVolumeKey: true, capsule))
        #expect(try !opens(hasA: true, hasVolumeKey: true, nil))
        // The backing directory alone.
        #expect(try !opens(hasA: true, hasVolumeKey: false, capsule))
    }

    @Test("a missing or exchanged capsule is damage of its files, and is named")
    func damage() throws {
        for isRemoved in [true, false] {
            let harness = try classB()
            try writeLocked("a", harness)
            let name = Capsule.fileName(try header("a", harness).capsuleID)
            try harness.reopen()
            if isRemoved {
                try FileManager.default.removeItem(at: url(name, harness))
            } else {
                let other = try #require(capsules(harness).first { $0 != name })
                try Data(contentsOf: url(other, harness)).write(to: url(name, harness))
            }
            #expect(throws: Errno.ioError) { try content("a", harness) }
            #expect(harness.events.integrityFailures.contains { $0.contains(name) })
        }
    }

    /// Puts another public key in place while the volume is closed, and opens it. `mac`: of the
    /// forged key, or of the genuine one.
    private func plantPublicKey(
        in harness: VolumeHarness, mac: (_ forged: [UInt8], _ genuine: Data) -> [UInt8]
    ) throws {
        let file = url(Capsule.publicKeyName, harness)
        let genuine = try Data(contentsOf: file)
        try harness.volume.close()
        let forged = try MLKEM768.publicKey(ofSeed: SecretBytes(random: 64))
        try Data(forged + mac(forged, genuine)).write(to: file)
        try harness.reopen(clean: false)
        #expect(try Data(contentsOf: file) == genuine)
    }

    @Test("a forged public key is replaced at the unlock, with an event, and a new capsule is made")
    func forgedPublicKey() throws {
        let harness = try classB()
        // The attacker has the device's files: the MAC is right.
        try plantPublicKey(in: harness) { forged, _ in
            HMACSHA256.authenticate(forged, key: harness.volume.keys.capsules)
        }
        #expect(harness.events.integrityFailures.contains { $0.contains("public") })
        try writeLocked("a", harness)
        try harness.reopen()
        #expect(try content("a", harness) == Array("inbox".utf8))
    }

    @Test("a public key that somebody without keys wrote is not used")
    func strangersPublicKey() throws {
        try plantPublicKey(in: classB()) { _, genuine in Array(genuine.suffix(32)) }
    }

    @Test("a link in the place of the public key is replaced")
    func linkForPublicKey() throws {
        let harness = try classB()
        let file = url(Capsule.publicKeyName, harness)
        let genuine = try Data(contentsOf: file)
        try harness.volume.close()
        try FileManager.default.removeItem(at: file)
        symlink("elsewhere", file.path)
        try harness.reopen(clean: false)
        #expect(try Data(contentsOf: file) == genuine)
        #expect(try capsules(harness).count == 1)
    }

    @Test("a file that is made after the unused capsule went names no capsule, and is read")
    func afterTheEnd() throws {
        let harness = try classB()
        try harness.volume.close()
        let (_, handle) = try harness.create("late")
        try harness.write(handle, 0, Array("late".utf8))
        #expect(try header("late", harness).capsuleID == Capsule.noID)
        harness.volume.release(handle, harness.context)
        try harness.reopen(clean: false)
        #expect(try content("late", harness) == Array("late".utf8))
    }

    @Test("a file that changes to class B and back keeps its content, with a capsule while in B")
    func classChange() throws {
        let harness = try VolumeHarness(format: .version2, defaultClass: .complete)
        let (node, handle) = try harness.create("f")
        try harness.write(handle, 0, Array("text".utf8))
        try harness.setClass(node, "completeUnlessOpen")
        #expect(try header("f", harness).capsuleID != Capsule.noID)
        try harness.setClass(node, "complete")
        #expect(try header("f", harness).capsuleID == Capsule.noID)
        harness.volume.release(handle, harness.context)
        try harness.reopen()
        #expect(try content("f", harness) == Array("text".utf8))
    }

    @Test("format 1 has no capsules")
    func formatOne() throws {
        let harness = try VolumeHarness(format: .version1, defaultClass: .completeUnlessOpen)
        try writeLocked("a", harness)
        #expect(try header("a", harness).capsuleID == Capsule.noID)
        #expect(throws: (any Error).self) { try capsules(harness) }
    }
}
