import Synchronization
import WardCrypto
import WardFormat
import WardSystem

/// The content of the hosts' file, as last read or written.
package struct TrustedHostList: Equatable {
    package var hosts: [TrustedHostEntry] = []
    /// Seconds since 1970.
    package var latestTime: UInt64 = 0
    /// The reason why the file can't be used; nil where it can.
    package var problem: KeybagError?

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
}

/// The slots of trusted hosts: their file, and their seals. Only code with the keybag's secrets can
/// open and seal them, and a change of the effaceable key seals them anew. The module
/// `WardTrustedHosts` decides which hosts are trusted.
extension KeybagStore {
    /// The hosts' file, for errors.
    package var hostsPath: String { context.directory.trustedHostsPath }
    /// The hosts, as last read or written.
    package var hostList: TrustedHostList { hosts.withLock { $0 } }

    /// The effaceable key of the keybag that is in place.
    package func currentEffaceable() throws(KeybagError) -> SecretBytes {
        try currentEffaceable(of: published.withLock { $0.keybag })
    }

    // MARK: Changing

    /// Judges a passcode like any attempt, and lends the keys of its slot. Other operations wait
    /// meanwhile. `check` comes first, so that a call that can't succeed costs no attempt.
    package func withPasscodeKeys(
        _ passcode: borrowing Passcode, check: () throws(KeybagError) -> Void,
        _ body: (borrowing KeybagKeySet) throws(KeybagError) -> Void
    ) throws(KeybagError) {
        try operations.withLock { _ throws(KeybagError) in
            try check()
            try body(try judge(passcode))
        }
    }

    /// Changes the list and its file. `body` also gets the effaceable key. Durable on return;
    /// unchanged where it throws.
    package func changeHosts(
        _ body: (inout TrustedHostList, borrowing SecretBytes) throws(KeybagError) -> Void
    ) throws(KeybagError) {
        try hostChanges.withLock { _ throws(KeybagError) in
            try context.withLock { () throws(KeybagError) in
                var list = hostList
                if let problem = list.problem { throw problem }
                let effaceable = try currentEffaceable()
                try body(&list, effaceable)
                try write(list, effaceable)
                hosts.withLock { $0 = list }
            }
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
        var list = hostList
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

    /// A new slot with classes A and B of `set`, for the host's `secret` and this device.
    package func sealedHostSlot(
        of entry: TrustedHostEntry, _ set: borrowing KeybagKeySet, secret: borrowing SecretBytes,
        effaceable: borrowing SecretBytes
    ) throws(KeybagError) -> [UInt8] {
        let slotKey = try hostSlotKey(from: set, effaceable: effaceable)
        return try sealSlot(sealKeys(set, for: entry.hostID, secret: secret), of: entry, slotKey)
    }

    /// Opens a slot: installs classes A and B (the private half) into `target`. Throws
    /// `hostUnknown` where the secret is not the host's.
    package func openHostSlot(
        of entry: TrustedHostEntry, _ slotKey: borrowing SecretBytes,
        secret: borrowing SecretBytes, into target: ClassKeyring
    ) throws(KeybagError) {
        let inner = try openSlot(entry, slotKey)
        let kek = try context.hierarchy.hostKEK(secret, hostID: entry.hostID)
        let data = TrustedHostEntry.innerAssociatedData(identity, hostID: entry.hostID)
        guard
            let set = try KeybagContext.open(
                inner, kek: kek, associatedData: data, identity: identity, path: hostsPath)
        else {
            throw KeybagError(
                .hostUnknown, path: hostsPath, "the secret is not the one of this host")
        }
        guard set.contains(.hostClasses) else {
            throw KeybagError(.damaged, path: hostsPath, "the slot of this host is incomplete")
        }
        try KeybagContext.install(set, into: target, path: hostsPath)
    }

    /// Sets the last use of a host, which its slot's seal covers.
    package func setLastUse(
        of entry: inout TrustedHostEntry, to time: UInt64, _ slotKey: borrowing SecretBytes
    ) throws(KeybagError) {
        let inner = try openSlot(entry, slotKey)
        entry.lastUsed = time
        entry.sealed = try sealSlot(inner, of: entry, slotKey)
    }

    /// The key of all slots. Throws `beforeFirstUnlock` where class C's key is missing.
    package func hostSlotKey(
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

    private func hostSlotKey(
        from set: borrowing KeybagKeySet, effaceable: borrowing SecretBytes
    ) throws(KeybagError) -> SecretBytes {
        let key: SecretBytes?
        do throws(Errno) {
            key = try set.key(of: .completeUntilFirstUserAuthentication)
        } catch {
            throw .noLockedMemory(hostsPath)
        }
        switch key {
        case .some(let key):
            let bound = try context.hierarchy.boundToDevice(classC: key, effaceable: effaceable)
            return try context.hierarchy.hostSlotKey(bound)
        case .none: preconditionFailure("a set of the passcode's classes has class C")
        }
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
            throw .noLockedMemory(hostsPath)
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
            throw .noLockedMemory(hostsPath)
        }
    }

    private func openSlot(
        _ entry: TrustedHostEntry, _ slotKey: borrowing SecretBytes
    ) throws(KeybagError) -> [UInt8] {
        let path = hostsPath
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
