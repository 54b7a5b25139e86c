import Synchronization
import WardCrypto
import WardFormat
import WardSystem

/// A trusted host, as shown to users.
public struct TrustedHost: Equatable, Sendable {
    public var hostID: [UInt8]
    public var name: String
    /// Seconds since 1970.
    public var made: UInt64
    public var lastUsed: UInt64
    /// When it expires unless it is used before; in the past where it has expired.
    public var expires: UInt64
    public var isExpired: Bool
}

/// The content of the hosts' file, as last read or written.
struct TrustedHostList: Equatable {
    var hosts: [TrustedHostEntry] = []
    /// Seconds since 1970.
    var latestTime: UInt64 = 0
    /// The reason why the file can't be used; nil where it can.
    var problem: KeybagError?

    static func load(_ loaded: KeybagLoader.Loaded) -> (list: TrustedHostList, notes: [String]) {
        var list = TrustedHostList()
        let context = loaded.context
        do throws(KeybagError) {
            let effaceable = try KeybagStore.effaceable(of: loaded.keybag, context)
            let secret = try context.hierarchy.deviceSecret(effaceable: effaceable)
            let key = try context.hierarchy.hostsMACKey(secret)
            let (table, note) = try context.trustedHosts.load(macKey: key)
            // Without a passcode no class is ever closed, so no host is needed.
            if let table, loaded.keybag.passcodeSlot != nil {
                list.hosts = table.hosts
                list.latestTime = table.latestTime
            }
            return (list, note.map { [$0] } ?? [])
        } catch {
            list.problem = error
            return (list, ["\(error); no host is trusted"])
        }
    }

    /// Drops the keys of hosts that were not used for too long. A time that is earlier than one
    /// seen before is ignored.
    mutating func advance(to now: UInt64) {
        latestTime = max(latestTime, now)
        for index in hosts.indices where isExpired(hosts[index]) { hosts[index].sealed = [] }
    }

    func isExpired(_ host: TrustedHostEntry) -> Bool {
        host.sealed.isEmpty || host.lastUsed &+ KeybagStore.hostLifetime <= latestTime
    }
}

extension KeybagStore {
    /// The time in seconds after whose last use a host is not trusted any more.
    public static let hostLifetime: UInt64 = 30 * 86400

    /// The latest time that this device saw while it trusted hosts, seconds since 1970; for
    /// `SteadyTime`.
    public var latestTime: UInt64 { hosts.withLock { $0.latestTime } }

    /// Every host that is trusted or was until it expired, in the order of adding. `now` comes from
    /// `SteadyTime`.
    public func trustedHosts(at now: UInt64) -> [TrustedHost] {
        var list = hosts.withLock { $0 }
        list.advance(to: now)
        return list.hosts.map { host in
            TrustedHost(
                hostID: host.hostID, name: host.name, made: host.made, lastUsed: host.lastUsed,
                expires: host.lastUsed &+ KeybagStore.hostLifetime,
                isExpired: list.isExpired(host))
        }
    }

    /// Trusts a host: with `secret` (32 bytes) it opens classes A and B after the first unlock, on
    /// this device.
    ///
    /// The passcode is judged like any attempt. An expired host of that name is removed first.
    /// Throws `hostExists`, `tooManyHosts`, `noPasscodeSet`, the errors of a wrong passcode,
    /// `system`.
    public func addTrustedHost(
        _ hostID: [UInt8], name: String, secret: borrowing SecretBytes,
        passcode: borrowing Passcode, at now: UInt64
    ) throws(KeybagError) {
        try operations.withLock { _ throws(KeybagError) in
            // Checked first, so that a call that can't succeed costs no attempt.
            var list = hosts.withLock { $0 }
            list.advance(to: now)
            try list.makeRoom(for: hostID, name, context.directory.trustedHostsPath)
            let set = try judge(passcode)
            try changeHosts(at: now) { (list, effaceable) throws(KeybagError) in
                try list.makeRoom(for: hostID, name, context.directory.trustedHostsPath)
                var entry = TrustedHostEntry(
                    hostID: hostID, name: name, made: list.latestTime, lastUsed: list.latestTime)
                let slotKey = try hostSlotKey(from: set, effaceable: effaceable)
                let inner = try sealKeys(set, for: hostID, secret: secret)
                entry.sealed = try sealSlot(inner, of: entry, slotKey)
                list.hosts.append(entry)
            }
        }
    }

    /// Opens a host's slot: installs classes A and B (the private half) into `target`. The volume's
    /// `keyring` has class C since the first unlock.
    ///
    /// Throws `beforeFirstUnlock`, `hostUnknown` (also where the secret is not the host's),
    /// `hostExpired`, `erased`, `system`.
    public func openTrustedHost(
        _ hostID: [UInt8], secret: borrowing SecretBytes, keyring: ClassKeyring,
        into target: ClassKeyring, at now: UInt64
    ) throws(KeybagError) {
        let path = context.directory.trustedHostsPath
        var list = hosts.withLock { $0 }
        if let problem = list.problem { throw problem }
        list.advance(to: now)
        let effaceable = try currentEffaceable(of: published.withLock { $0.keybag })
        let slotKey = try hostSlotKey(from: keyring, effaceable: effaceable)
        guard let entry = list.hosts.first(where: { $0.hostID == hostID }) else {
            throw KeybagError(.hostUnknown, path: path, "no such host is trusted")
        }
        guard !list.isExpired(entry) else {
            // Its keys are deleted for good, even if a clock says an earlier time later.
            try? changeHosts(at: now) { (_, _) throws(KeybagError) in }
            throw KeybagError(
                .hostExpired, path: path, "the host was not used for 30 days: it expired")
        }
        let inner = try openSlot(entry, slotKey)
        let kek = try context.hierarchy.hostKEK(secret, hostID: hostID)
        guard
            let set = try KeybagContext.open(
                inner, kek: kek,
                associatedData: TrustedHostEntry.innerAssociatedData(identity, hostID: hostID),
                identity: identity, path: path)
        else {
            throw KeybagError(.hostUnknown, path: path, "the secret is not the one of this host")
        }
        guard set.contains(.hostClasses) else {
            throw KeybagError(.damaged, path: path, "the slot of this host is incomplete")
        }
        try KeybagContext.install(set, into: target, path: path)
    }

    /// Writes down that these hosts are used now, and the time. Does nothing where no host is
    /// trusted.
    public func noteHostUse(
        _ hostIDs: [[UInt8]], keyring: ClassKeyring, at now: UInt64
    ) throws(KeybagError) {
        guard hosts.withLock({ !$0.hosts.isEmpty }) else { return }
        try changeHosts(at: now, using: hostIDs, keyring) { (_, _) throws(KeybagError) in }
    }

    /// Removes a host; its secret is worthless from now on. Returns its ID. Throws `hostUnknown`,
    /// `system`.
    public func removeTrustedHost(named name: String, at now: UInt64) throws(KeybagError) -> [UInt8]
    {
        var removed: [UInt8]?
        try changeHosts(at: now) { (list, _) throws(KeybagError) in
            guard let index = list.hosts.firstIndex(where: { $0.name == name }) else {
                throw KeybagError(
                    .hostUnknown, path: context.directory.trustedHostsPath,
                    "no host of this name is trusted")
            }
            removed = list.hosts.remove(at: index).hostID
        }
        return removed!
    }

    // MARK: Changing

    /// Changes the list and its file. Durable on return; unchanged where it throws.
    private func changeHosts(
        at now: UInt64, using hostIDs: [[UInt8]] = [], _ keyring: ClassKeyring? = nil,
        _ body: (inout TrustedHostList, borrowing SecretBytes) throws(KeybagError) -> Void
    ) throws(KeybagError) {
        try hostChanges.withLock { _ throws(KeybagError) in
            try context.withLock { () throws(KeybagError) in
                var list = hosts.withLock { $0 }
                if let problem = list.problem { throw problem }
                let effaceable = try currentEffaceable(of: published.withLock { $0.keybag })
                // After a reboot class C's key is gone: then only the time is written down.
                if let keyring, !hostIDs.isEmpty,
                    let slotKey = try? hostSlotKey(from: keyring, effaceable: effaceable)
                {
                    list.latestTime = max(list.latestTime, now)
                    try renew(&list, hostIDs, slotKey)
                }
                list.advance(to: now)
                try body(&list, effaceable)
                try write(list, effaceable)
                hosts.withLock { $0 = list }
            }
        }
    }

    /// Sets the last use of hosts in use to now, before the caller checks which hosts expired.
    private func renew(
        _ list: inout TrustedHostList, _ hostIDs: [[UInt8]], _ slotKey: borrowing SecretBytes
    ) throws(KeybagError) {
        for index in list.hosts.indices
        where hostIDs.contains(list.hosts[index].hostID) && !list.hosts[index].sealed.isEmpty {
            let inner = try openSlot(list.hosts[index], slotKey)
            list.hosts[index].lastUsed = list.latestTime
            list.hosts[index].sealed = try sealSlot(inner, of: list.hosts[index], slotKey)
        }
    }

    private func write(
        _ list: TrustedHostList, _ effaceable: borrowing SecretBytes, asNext: Bool = false
    ) throws(KeybagError) {
        let file = context.trustedHosts
        guard !list.hosts.isEmpty else {
            do throws(Errno) {
                try file.destroy()
            } catch {
                throw .system(error, file.path, "can't remove the trusted hosts")
            }
            return
        }
        var table = TrustedHostTable(uuid: context.uuid, latestTime: list.latestTime)
        table.hosts = list.hosts
        let secret = try context.hierarchy.deviceSecret(effaceable: effaceable)
        try file.store(table, macKey: try context.hierarchy.hostsMACKey(secret), asNext: asNext)
    }

    // MARK: At a change of the effaceable key

    /// The hosts with their slots sealed for `fresh`; nil where there are no hosts. The caller
    /// holds the device's lock.
    func hostsResealed(
        _ set: borrowing KeybagKeySet, _ current: borrowing SecretBytes,
        _ fresh: borrowing SecretBytes
    ) throws(KeybagError) -> TrustedHostList? {
        var list = hosts.withLock { $0 }
        guard !list.hosts.isEmpty else { return nil }
        let old = try hostSlotKey(from: set, effaceable: current)
        let new = try hostSlotKey(from: set, effaceable: fresh)
        for index in list.hosts.indices where !list.hosts[index].sealed.isEmpty {
            let inner = try openSlot(list.hosts[index], old)
            list.hosts[index].sealed = try sealSlot(inner, of: list.hosts[index], new)
        }
        return list
    }

    func storeNextHosts(
        _ carried: TrustedHostList?, _ fresh: borrowing SecretBytes
    ) throws(KeybagError) {
        if let carried { try write(carried, fresh, asNext: true) }
    }

    /// Called when the new keybag is in place: slots for the old one are worthless, even if wiping
    /// them fails. Returns the names of hosts that lost their trust.
    func replaceHosts(by carried: TrustedHostList?) -> [String] {
        let before = hosts.withLock { hosts in
            defer { hosts = carried ?? TrustedHostList() }
            return hosts
        }
        if carried != nil {
            try? context.trustedHosts.adoptNext()
            return []
        }
        try? context.trustedHosts.destroy()
        return before.hosts.map(\.name)
    }

    // MARK: Sealing

    private func hostSlotKey(
        from set: borrowing KeybagKeySet, effaceable: borrowing SecretBytes
    ) throws(KeybagError) -> SecretBytes {
        let key: SecretBytes?
        do throws(Errno) {
            key = try set.key(of: .completeUntilFirstUserAuthentication)
        } catch {
            throw .noLockedMemory(context.directory.trustedHostsPath)
        }
        switch key {
        case .some(let key):
            let bound = try context.hierarchy.boundToDevice(classC: key, effaceable: effaceable)
            return try context.hierarchy.hostSlotKey(bound)
        case .none: preconditionFailure("a set of the passcode's classes has class C")
        }
    }

    /// Throws `beforeFirstUnlock` where class C's key is missing.
    private func hostSlotKey(
        from keyring: ClassKeyring, effaceable: borrowing SecretBytes
    ) throws(KeybagError) -> SecretBytes {
        var bound: SecretBytes?
        var failure: KeybagError?
        do throws(KeyringError) {
            try keyring.withKey(of: .completeUntilFirstUserAuthentication) { key in
                do throws(KeybagError) {
                    bound = try context.hierarchy.boundToDevice(
                        classC: key, effaceable: effaceable)
                } catch {
                    failure = error
                }
            }
        } catch {
            throw KeybagError(
                .beforeFirstUnlock, path: volumePath,
                "before the first unlock no trusted host opens anything")
        }
        if let failure { throw failure }
        return try context.hierarchy.hostSlotKey(bound.take()!)
    }

    private func sealKeys(
        _ set: borrowing KeybagKeySet, for hostID: [UInt8], secret: borrowing SecretBytes
    ) throws(KeybagError) -> [UInt8] {
        let kek = try context.hierarchy.hostKEK(secret, hostID: hostID)
        do {
            let plain = try set.serialized(.hostClasses)
            return try AEADContext(.aes256GCM, key: kek).sealSecret(
                plain,
                associatedData: TrustedHostEntry.innerAssociatedData(identity, hostID: hostID))
        } catch {
            throw .noLockedMemory(context.directory.trustedHostsPath)
        }
    }

    private func sealSlot(
        _ inner: [UInt8], of entry: TrustedHostEntry, _ slotKey: borrowing SecretBytes
    ) throws(KeybagError) -> [UInt8] {
        do throws(CryptoError) {
            let cipher = try AEADContext(.aes256GCM, key: slotKey)
            let data = entry.associatedData(identity)
            return inner.withUnsafeBytes { cipher.sealCombined($0, associatedData: data) }
        } catch {
            throw .noLockedMemory(context.directory.trustedHostsPath)
        }
    }

    private func openSlot(
        _ entry: TrustedHostEntry, _ slotKey: borrowing SecretBytes
    ) throws(KeybagError) -> [UInt8] {
        let path = context.directory.trustedHostsPath
        do throws(CryptoError) {
            return try AEADContext(.aes256GCM, key: slotKey).openSecret(
                entry.sealed, associatedData: entry.associatedData(identity)
            ).withUnsafeBytes { [UInt8]($0) }
        } catch {
            if error == .authenticationFailed {
                throw KeybagError(.damaged, path: path, "the slot of this host is damaged")
            }
            throw .noLockedMemory(path)
        }
    }
}

extension TrustedHostList {
    /// Makes room for a host of this name: removes an expired one, or throws.
    fileprivate mutating func makeRoom(
        for hostID: [UInt8], _ name: String, _ path: String
    ) throws(KeybagError) {
        if let problem { throw problem }
        let current = self
        hosts.removeAll { $0.name == name && current.isExpired($0) }
        guard !hosts.contains(where: { $0.name == name || $0.hostID == hostID }) else {
            throw KeybagError(.hostExists, path: path, "a host of this name is trusted already")
        }
        guard hosts.count < TrustedHostTable.maximumHosts else {
            throw KeybagError(
                .tooManyHosts, path: path,
                "\(TrustedHostTable.maximumHosts) hosts are trusted, and there can be no more")
        }
    }
}
