import Testing
import WardCrypto
import WardFormat
import WardSystem
import WardTrustedHosts

@testable import WardKeys

/// The device's side of trusted hosts: which host gets which keys when, and the state after a power
/// cut.
@Suite("Trusted hosts")
struct TrustedHostTests {
    static let start: UInt64 = 1_800_000_000
    static let day: UInt64 = 86400

    /// The host's side.
    struct Host: Sendable {
        let id: [UInt8]
        let secret: [UInt8]

        init() {
            id = SystemRandom.bytes(16)
            secret = SystemRandom.bytes(32)
        }
    }

    /// The volume's keyring after the first unlock.
    private func unlocked(
        _ store: KeybagStore, _ text: String = "old"
    ) throws -> ClassKeyring {
        let keyring = ClassKeyring(classBPublicKey: store.classBPublicKey)
        _ = try store.openDeviceSlot(into: keyring)
        if store.hasPasscode {
            try store.openPasscodeSlot(try passcode(text), into: keyring)
        }
        return keyring
    }

    private func add(
        _ host: Host, _ name: String, to store: KeybagStore, _ text: String = "old",
        at time: UInt64 = start
    ) throws {
        try store.addTrustedHost(
            host.id, name: name, secret: try secret(host.secret), passcode: try passcode(text),
            at: time)
    }

    /// The keys that a host gets, or the error.
    private func keys(
        _ host: Host, _ store: KeybagStore, _ keyring: ClassKeyring, at time: UInt64 = start
    ) throws -> Result<[[UInt8]], KeybagError> {
        let target = ClassKeyring(classBPublicKey: store.classBPublicKey)
        do throws(KeybagError) {
            let given: SecretBytes
            do { given = try secret(host.secret) } catch { fatalError("no memory") }
            try store.openTrustedHost(
                host.id, secret: given, keyring: keyring, into: target, at: time)
        } catch {
            #expect(target.available == [], "nothing of a refused host is left")
            return .failure(error)
        }
        #expect(target.available == [.a, .b], "these two, and no other")
        return .success(
            try [ProtectionClass.complete, .completeUnlessOpen].map {
                try target.withKey(of: $0) { $0.exposed() }
            })
    }

    private func refusal(
        _ host: Host, _ store: KeybagStore, _ keyring: ClassKeyring, at time: UInt64 = start
    ) throws -> KeybagError.Code? {
        if case .failure(let error) = try keys(host, store, keyring, at: time) {
            error.code
        } else {
            nil
        }
    }

    @Test("a host gets A's key and B's private key, again after the volume was opened anew")
    func opens() throws {
        let volume = try SimulatedVolume(passcode: "old")
        let store = try volume.open()
        let all = try store.allKeys("old")
        let (laptop, desk) = (Host(), Host())
        try add(laptop, "laptop", to: store)
        try add(desk, "desk", to: store, at: Self.start + 5)
        for store in [store, try volume.open()] {
            let keyring = try unlocked(store)
            for host in [laptop, desk] {
                #expect(try keys(host, store, keyring).get() == [all[1], all[2]])
            }
            let listed = store.trustedHosts(at: Self.start + 10)
            #expect(listed.map(\.name) == ["laptop", "desk"])
            #expect(listed.map(\.made) == [Self.start, Self.start + 5])
            #expect(listed[0].expires == Self.start + 30 * Self.day && !listed[0].isExpired)
        }
    }

    @Test("before the first unlock: refused, whatever the host has")
    func beforeFirstUnlock() throws {
        let volume = try SimulatedVolume(passcode: "old")
        let store = try volume.open()
        let host = Host()
        try add(host, "laptop", to: store)
        let keyring = ClassKeyring(classBPublicKey: store.classBPublicKey)
        _ = try store.openDeviceSlot(into: keyring)
        #expect(try refusal(host, store, keyring) == .beforeFirstUnlock)
    }

    @Test("another secret, another host's ID, a host nobody trusts: refused")
    func strangers() throws {
        let volume = try SimulatedVolume(passcode: "old")
        let store = try volume.open()
        let keyring = try unlocked(store)
        let (known, stranger) = (Host(), Host())
        #expect(try refusal(stranger, store, keyring) == .hostUnknown, "without any host")
        try add(known, "laptop", to: store)
        #expect(try refusal(stranger, store, keyring) == .hostUnknown)
        let other = SimulatedVolumeHost(id: known.id, secret: stranger.secret)
        let target = ClassKeyring(classBPublicKey: store.classBPublicKey)
        let wrong = try secret(other.secret)
        #expect(throws: KeybagError.self) {
            try store.openTrustedHost(
                other.id, secret: wrong, keyring: keyring, into: target, at: Self.start)
        }
        #expect(target.available == [])
    }

    private struct SimulatedVolumeHost {
        let id: [UInt8]
        let secret: [UInt8]
    }

    @Test("adding asks for the passcode, and a wrong one counts")
    func wrongPasscode() throws {
        let volume = try SimulatedVolume(passcode: "old")
        let store = try volume.open()
        do throws(KeybagError) {
            let typed: Passcode
            let given: SecretBytes
            do {
                typed = try passcode("wrong")
                given = try secret(Host().secret)
            } catch { fatalError("no memory") }
            try store.addTrustedHost(
                Host().id, name: "laptop", secret: given, passcode: typed, at: Self.start)
            Issue.record("a wrong passcode was taken")
        } catch {
            #expect(error.code == .wrongPasscode(triesLeft: 9))
        }
        #expect(store.trustedHosts(at: Self.start).isEmpty)
        #expect(volume.storage[volume.directory.trustedHostsPath] == nil)
        // A host that can't be added costs no try.
        try add(Host(), "laptop", to: store)
        _ = try? store.failure(opening: "wrong 2")
        let typed = try passcode("wrong 3")
        let given = try secret(Host().secret)
        #expect(
            throws: KeybagError(
                .hostExists, path: volume.directory.trustedHostsPath,
                "a host of this name is trusted already")
        ) {
            try store.addTrustedHost(
                Host().id, name: "laptop", secret: given, passcode: typed, at: Self.start)
        }
        #expect(store.attempts.wrongPasscodes == 1)
    }

    @Test("without a passcode there is nobody to trust")
    func noPasscode() throws {
        let volume = try SimulatedVolume(passcode: nil)
        let store = try volume.open()
        let typed = try passcode("any")
        let given = try secret(Host().secret)
        do throws(KeybagError) {
            try store.addTrustedHost(
                Host().id, name: "laptop", secret: given, passcode: typed, at: Self.start)
            Issue.record("trusted in S0")
        } catch {
            #expect(error.code == .noPasscodeSet)
        }
    }

    @Test("there can be 32, and no more")
    func limit() throws {
        let volume = try SimulatedVolume(passcode: "old")
        let store = try volume.open()
        for index in 0..<TrustedHostTable.maximumHosts {
            try add(Host(), String(repeating: "n", count: 62) + "\(index + 10)", to: store)
        }
        let file = try #require(volume.storage[volume.directory.trustedHostsPath])
        #expect(file.count <= TrustedHostTable.maximumBytes)
        #expect(throws: KeybagError.self) { try add(Host(), "one more", to: store) }
        #expect(try volume.open().trustedHosts(at: Self.start).count == 32)
    }

    // MARK: Time

    @Test("30 days after its last use a host has expired; use renews it")
    func expiry() throws {
        let volume = try SimulatedVolume(passcode: "old")
        let store = try volume.open()
        let keyring = try unlocked(store)
        let (used, idle) = (Host(), Host())
        try add(used, "used", to: store)
        try add(idle, "idle", to: store)
        let later = Self.start + 29 * Self.day
        #expect(try refusal(used, store, keyring, at: later) == nil)
        try store.noteHostUse([used.id], keyring: keyring, at: later)
        let end = Self.start + 30 * Self.day
        #expect(try refusal(idle, store, keyring, at: end - 1) == nil, "a second before")
        #expect(try refusal(idle, store, keyring, at: end) == .hostExpired)
        #expect(try refusal(used, store, keyring, at: end) == nil)
        #expect(
            try refusal(used, store, keyring, at: later + 30 * Self.day) == .hostExpired)
        let listed = store.trustedHosts(at: later + 30 * Self.day)
        #expect(listed.map(\.isExpired) == [true, true])
        // An expired host makes room for a new one of the same name.
        let again = Host()
        try add(again, "idle", to: store, at: later + 31 * Self.day)
        #expect(try refusal(again, store, keyring, at: later + 31 * Self.day) == nil)
        #expect(try refusal(idle, store, keyring, at: later + 31 * Self.day) == .hostUnknown)
    }

    @Test("a host in use does not expire under its connection")
    func inUse() throws {
        let volume = try SimulatedVolume(passcode: "old")
        let store = try volume.open()
        let keyring = try unlocked(store)
        let host = Host()
        try add(host, "laptop", to: store)
        let later = Self.start + 45 * Self.day
        try store.noteHostUse([host.id], keyring: keyring, at: later)
        #expect(try refusal(host, store, keyring, at: later + 29 * Self.day) == nil)
    }

    @Test(
        "a clock set back brings no expired host back: its keys are gone, and the time was written down"
    )
    func clockSetBack() throws {
        let volume = try SimulatedVolume(passcode: "old")
        let host = Host()
        do {
            let store = try volume.open()
            try add(host, "laptop", to: store)
            // The later time comes from another host's use, or from the hourly note.
            let keyring = try unlocked(store)
            try store.noteHostUse([], keyring: keyring, at: Self.start + 31 * Self.day)
        }
        let store = try volume.open()
        #expect(store.latestTime == Self.start + 31 * Self.day)
        let keyring = try unlocked(store)
        for time in [Self.start, Self.start + 1, 0] {
            #expect(try refusal(host, store, keyring, at: time) == .hostExpired)
        }
        let file = try #require(volume.storage[volume.directory.trustedHostsPath])
        let table = try TrustedHostTable(reading: file)
        #expect(table.hosts.map(\.sealed) == [[]], "nothing is left that a clock could revive")
    }

    @Test(
        "time runs on with the boot's clock where the wall's is set back, and starts where it was seen last"
    )
    func steadyTime() {
        var time = SteadyTime(wall: 1000, latest: 0, sinceBoot: .seconds(50))
        #expect(time.now(wall: 1010, sinceBoot: .seconds(60)) == 1010)
        #expect(time.now(wall: 5, sinceBoot: .seconds(70)) == 1020, "set back")
        #expect(time.now(wall: 9000, sinceBoot: .seconds(71)) == 9000, "set forward: believed")
        #expect(time.now(wall: 1000, sinceBoot: .seconds(72)) == 9000)
        var next = SteadyTime(wall: 1000, latest: 9000, sinceBoot: .seconds(3))
        #expect(
            next.now(wall: 1001, sinceBoot: .seconds(4)) == 9001,
            "after a start with the clock set back")
        var manual = SteadyTime(wall: 1000, latest: 0, sinceBoot: .seconds(1))
        #expect(manual.now(wall: nil, sinceBoot: .seconds(11)) == 1010)
        var nonsense = SteadyTime(wall: .max, latest: .max, sinceBoot: .zero)
        #expect(nonsense.now(wall: .max, sinceBoot: .seconds(9)) == .max)
    }

    @Test("time of nonsense stops nobody")
    func farFuture() throws {
        let volume = try SimulatedVolume(passcode: "old")
        let store = try volume.open()
        let keyring = try unlocked(store)
        let host = Host()
        try add(host, "laptop", to: store, at: .max)
        _ = try refusal(host, store, keyring, at: .max)
        #expect(store.trustedHosts(at: .max).count == 1)
    }

    // MARK: What ends trust

    @Test("removed: worthless at once, and after a restart; the others stay")
    func removed() throws {
        let volume = try SimulatedVolume(passcode: "old")
        let store = try volume.open()
        let keyring = try unlocked(store)
        let (gone, stays) = (Host(), Host())
        try add(gone, "gone", to: store)
        try add(stays, "stays", to: store)
        #expect(try store.removeTrustedHost(named: "gone", at: Self.start) == gone.id)
        for store in [store, try volume.open()] {
            #expect(try refusal(gone, store, keyring) == .hostUnknown)
            #expect(try refusal(stays, store, keyring) == nil)
        }
        #expect(throws: KeybagError.self) {
            try store.removeTrustedHost(named: "gone", at: Self.start)
        }
        _ = try store.removeTrustedHost(named: "stays", at: Self.start)
        #expect(volume.storage[volume.directory.trustedHostsPath] == nil, "and no file is left")
    }

    @Test(
        "a change of the passcode: no host is trusted any more; the file from before is worthless")
    func passcodeChange() throws {
        let volume = try SimulatedVolume(passcode: "old")
        let store = try volume.open()
        let host = Host()
        try add(host, "laptop", to: store)
        let before = try #require(volume.storage[volume.directory.trustedHostsPath])
        #expect(
            try store.changePasscode(try passcode("old"), to: try passcode("new")) == ["laptop"])
        #expect(volume.storage[volume.directory.trustedHostsPath] == nil)
        for returns in [false, true] {
            if returns { volume.storage[volume.directory.trustedHostsPath] = before }
            let store = try volume.open()
            let keyring = try unlocked(store, "new")
            #expect(try refusal(host, store, keyring) == .hostUnknown)
            #expect(store.trustedHosts(at: Self.start).isEmpty)
            #expect(!returns || store.notes.contains { $0.contains("no host is trusted") })
        }
    }

    @Test("a keybag and a file of hosts from before a change, put back together: nothing")
    func replayed() throws {
        let volume = try SimulatedVolume(passcode: "old")
        let host = Host()
        try add(host, "laptop", to: try volume.open())
        let paths = [
            SimulatedVolume.keybag, SimulatedVolume.copy, volume.directory.trustedHostsPath,
        ]
        let before = paths.map { volume.storage[$0] }
        try volume.open().changePasscode(try passcode("old"), to: try passcode("new"))
        for (path, bytes) in zip(paths, before) { volume.storage[path] = bytes }
        for accepts in [false, true] {
            #expect(throws: KeybagError.self) {
                try volume.open(acceptsOlderGeneration: accepts)
            }
        }
    }

    @Test("a change of the policy alone: they stay")
    func policyChange() throws {
        let volume = try SimulatedVolume(passcode: "old")
        let store = try volume.open()
        let all = try store.allKeys("old")
        let host = Host()
        try add(host, "laptop", to: store)
        try store.changePolicy(
            PolicyChange(gracePeriod: .seconds(5)), passcode: try passcode("old"))
        for store in [store, try volume.open()] {
            let keyring = try unlocked(store)
            #expect(try keys(host, store, keyring).get() == [all[1], all[2]])
        }
    }

    @Test("a new format of the keybag: they stay")
    func newFormat() throws {
        let volume = try SimulatedVolume(passcode: "old")
        let store = try volume.open()
        let all = try store.allKeys("old")
        let host = Host()
        try add(host, "laptop", to: store)
        try store.raise(to: .version2, passcode: try passcode("old"))
        for store in [store, try volume.open()] {
            let keyring = try unlocked(store)
            #expect(try keys(host, store, keyring).get() == [all[1], all[2]])
            #expect(store.format == .version2)
        }
    }

    @Test("the passcode removed: no host, and none after it is set again")
    func passcodeRemoved() throws {
        let volume = try SimulatedVolume(passcode: "old")
        let store = try volume.open()
        let host = Host()
        try add(host, "laptop", to: store)
        #expect(try store.removePasscode(try passcode("old")) == ["laptop"])
        #expect(store.trustedHosts(at: Self.start).isEmpty)
        try store.setPasscode(try passcode("old"))
        #expect(try refusal(host, store, try unlocked(store)) == .hostUnknown)
    }

    @Test("erased: worthless at once, even with every class key in memory")
    func erased() throws {
        let volume = try SimulatedVolume(passcode: "old")
        let store = try volume.open()
        let keyring = try unlocked(store)
        let host = Host()
        try add(host, "laptop", to: store)
        let before = try #require(volume.storage[volume.directory.trustedHostsPath])
        try store.erase()
        #expect(volume.storage[volume.directory.trustedHostsPath] == nil, "it has names in it")
        volume.storage[volume.directory.trustedHostsPath] = before
        #expect(try refusal(host, store, keyring) == .erased)
    }

    @Test("another device, to which volume and file of hosts were copied: worthless")
    func anotherDevice() throws {
        let volume = try SimulatedVolume(passcode: "old")
        let host = Host()
        try add(host, "laptop", to: try volume.open())
        let table = try TrustedHostTable(
            reading: try #require(volume.storage[volume.directory.trustedHostsPath]))
        // A copy as `adopt` makes it: the same class keys, but its own device key and effaceable
        // key.
        let other = SimulatedKeyStorage(volume.storage.image)
        for path in [volume.directory.deviceKeyPath, volume.directory.effaceableKeyPath] {
            let kind: KeyFile.Kind =
                path == volume.directory.deviceKeyPath ? .device : .effaceable
            let key = try SecretBytes(random: 32)
            other[path] = try KeyFile.serialized(kind, uuid: table.uuid, first: key).exposed()
        }
        let context = KeybagContext(
            volumePath: SimulatedVolume.volume, stateRoot: SimulatedVolume.state, uuid: table.uuid,
            storage: other, clock: .system)
        let key = try #require(try context.effaceable.key(0)?.exposed())
        let macKey = try context.hierarchy.hostsMACKey(
            try context.hierarchy.deviceSecret(effaceable: try secret(key)))
        let (found, note) = try context.trustedHosts.load(macKey: macKey)
        #expect(found == nil && note != nil)
        #expect(other[volume.directory.trustedHostsPath] == nil, "wiped and gone")
    }

    // MARK: The file

    @Test(
        "every flipped byte of the file, with the checksum put right too: no host, and never another key"
    )
    func everyFlippedByte() throws {
        let volume = try SimulatedVolume(passcode: "old")
        let host = Host()
        try add(host, "laptop", to: try volume.open())
        let path = volume.directory.trustedHostsPath
        let file = try #require(volume.storage[path])
        let image = volume.storage.image
        // A file with a wrong checksum is not even parsed (`TrustedHostFormatTests`).
        for index in file.indices.dropLast(31) {
            var changed = file
            changed[index] ^= 0x20
            if index < file.count - 32 {
                changed.replaceSubrange(
                    (file.count - 32)..., with: SHA256Digest.hash(Array(changed.dropLast(32))))
            }
            let storage = SimulatedKeyStorage(image)
            storage[path] = changed
            #expect(
                try volume.open(storage).trustedHosts(at: Self.start).isEmpty, "byte \(index)")
        }
        // A file of a later version is not changed.
        var newer = file
        newer[8] = 2
        newer.replaceSubrange(
            (file.count - 32)..., with: SHA256Digest.hash(Array(newer.dropLast(32))))
        let storage = SimulatedKeyStorage(image)
        storage[path] = newer
        let store = try volume.open(storage)
        #expect(storage[path] == newer)
        #expect(try refusal(host, store, try unlocked(store)) == .newerVersion)
        #expect(throws: KeybagError.self) { try add(Host(), "other", to: store) }
        #expect(storage[path] == newer)
    }

    @Test("cut off anywhere: no host")
    func truncated() throws {
        let volume = try SimulatedVolume(passcode: "old")
        try add(Host(), "laptop", to: try volume.open())
        let path = volume.directory.trustedHostsPath
        let file = try #require(volume.storage[path])
        for count in stride(from: 0, to: file.count, by: 7) {
            let storage = SimulatedKeyStorage(volume.storage.image)
            storage[path] = Array(file[..<count])
            #expect(try volume.open(storage).trustedHosts(at: Self.start).isEmpty, "\(count)")
        }
    }

    @Test("the file opens as docs/format-keybag.md says, by its own arithmetic")
    func documented() throws {
        let volume = try SimulatedVolume(passcode: "old")
        let store = try volume.open()
        let all = try store.allKeys("old")
        let host = Host()
        try add(host, "laptop", to: store)
        let file = try #require(volume.storage[volume.directory.trustedHostsPath])
        #expect(Array(file[0..<8]) == Array("WARDTRST".utf8) && file[8] == 1 && file[10] == 1)
        let uuid = Array(file[16..<32])
        let identity = uuid + [0x00, 0x10, 0, 0] + store.classBPublicKey
        let entry = Array(file[40..<(40 + 36 + 6 + 123)])
        #expect(Array(entry[0..<16]) == host.id)
        #expect(Array(entry[36..<42]) == Array("laptop".utf8))
        let device = try secret(
            Array(try #require(volume.storage[volume.directory.deviceKeyPath])[32..<64]))
        let effaceable = try secret(
            Array(try #require(volume.storage[volume.directory.effaceableKeyPath])[32..<64]))
        func entangle(_ purpose: String, _ bytes: [UInt8]) throws -> SecretBytes {
            try HMACSHA256.derive(try secret(Array(purpose.utf8) + [0] + bytes), key: device)
        }
        // The MAC.
        let deviceSecret = try entangle("ward device v1", effaceable.exposed())
        let macKey = try KeyDerivation.derive(
            from: deviceSecret, salt: uuid, info: "ward trusted hosts v1")
        let body = file.count - 64
        #expect(
            HMACSHA256.authenticate(Array(file[..<body]), key: macKey)
                == Array(file[body..<(body + 32)]))
        // The outer seal, made with class C, the effaceable key and the device key.
        let bound = try HMACSHA256.derive(try secret(all[3]), key: effaceable).exposed()
        let slotKey = try KeyDerivation.derive(
            from: try entangle("ward trusted host v1", bound), salt: uuid,
            info: "ward trusted host slot v1")
        let inner = try AEADContext(.aes256GCM, key: slotKey).openSecret(
            Array(entry[42...]),
            associatedData: identity + Array(entry[0..<34]) + Array(entry[36..<42])
        ).exposed()
        // The inner seal, made with the host's secret.
        let kek = try KeyDerivation.derive(
            from: try secret(host.secret), salt: host.id, info: "ward trusted host v1")
        let set = try AEADContext(.aes256GCM, key: kek).openSecret(
            inner, associatedData: identity + host.id
        ).exposed()
        #expect(set == [2, 1] + all[1] + [2] + all[2])
    }

    // MARK: Power cuts

    enum Change: CaseIterable, Sendable {
        case add, remove, use, policy, passcode
    }

    @Test(
        "the power goes at any point of a change: as before or as after, and what was acknowledged holds",
        arguments: Change.allCases, SimulatedKeyStorage.Survival.allCases)
    func everyCrashPoint(change: Change, survival: SimulatedKeyStorage.Survival) throws {
        let volume = try SimulatedVolume(passcode: "old")
        let (first, second) = (Host(), Host())
        let all = try volume.open().allKeys("old")
        try add(first, "first", to: try volume.open())
        // Class keys stay the same in every change.
        let keyring = try unlocked(try volume.open())
        let image = volume.storage.afterPowerLoss(.everything)
        let later = Self.start + 20 * Self.day
        var seen: Set<String> = []
        for point in 0... {
            let storage = SimulatedKeyStorage(image, failingAt: point)
            var isDone = false
            if let store = try? volume.open(storage) {
                isDone =
                    (try? perform(change, store, keyring, second, later)) != nil
                    && !storage.hasFailed
            }
            let after = try volume.open(SimulatedKeyStorage(storage.afterPowerLoss(survival)))
            // `PowerLossTests` test which passcode opens then.
            let isNewPasscode = change == .passcode && after.generation > 1
            let hosts = after.trustedHosts(at: later)
            let state =
                hosts.map { "\($0.name) \($0.lastUsed - Self.start)" }.joined(separator: ", ")
                + (isNewPasscode ? " new" : "")
                + (after.policy.gracePeriod == .seconds(77) ? " 77" : "")
            seen.insert(state)
            for (host, name) in [(first, "first"), (second, "second")] {
                let expected = hosts.contains { $0.name == name }
                let got = try keys(host, after, keyring, at: later)
                if expected {
                    #expect(try got.get() == [all[1], all[2]], "point \(point): \(state)")
                } else {
                    #expect(throws: KeybagError.self) { try got.get() }
                }
            }
            if isDone {
                let wanted =
                    switch change {
                    case .add: "first 0, second 1728000"
                    case .remove: ""
                    case .use: "first 1728000"
                    case .policy: "first 0 77"
                    case .passcode: " new"
                    }
                #expect(state == wanted, "acknowledged at point \(point)")
            }
            if !storage.hasFailed { break }
        }
        // No state in between: an added host replaces no other, and no policy comes without its
        // host.
        #expect(seen.count == 2, "\(seen)")
    }

    private func perform(
        _ change: Change, _ store: KeybagStore, _ keyring: ClassKeyring, _ second: Host,
        _ later: UInt64
    ) throws {
        switch change {
        case .add: try add(second, "second", to: store, at: later)
        case .remove: _ = try store.removeTrustedHost(named: "first", at: later)
        case .use:
            let first = store.trustedHosts(at: later)[0].hostID
            try store.noteHostUse([first], keyring: keyring, at: later)
        case .policy:
            try store.changePolicy(
                PolicyChange(gracePeriod: .seconds(77)), passcode: try passcode("old"))
        case .passcode:
            try store.changePasscode(try passcode("old"), to: try passcode("new"))
        }
    }

    @Test(
        "a failing disk that is no power cut: the change is refused, and the hosts stay as they were"
    )
    func failingDisk() throws {
        let volume = try SimulatedVolume(passcode: "old")
        let host = Host()
        try add(host, "first", to: try volume.open())
        let image = volume.storage.afterPowerLoss(.everything)
        let storage = SimulatedKeyStorage(image, failingAt: 4)
        let store = try volume.open(storage)
        let keyring = try unlocked(store)
        #expect(throws: KeybagError.self) {
            try store.removeTrustedHost(named: "first", at: Self.start)
        }
        #expect(store.trustedHosts(at: Self.start).map(\.name) == ["first"])
        _ = keyring
    }
}
