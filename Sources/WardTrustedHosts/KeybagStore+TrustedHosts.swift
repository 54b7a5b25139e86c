import WardCrypto
import WardFormat
import WardKeys
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

extension KeybagStore {
    /// The time in seconds after whose last use a host is not trusted any more.
    public static let hostLifetime: UInt64 = 30 * 86400

    /// The latest time that this device saw while it trusted hosts, seconds since 1970; for
    /// `SteadyTime`.
    public var latestTime: UInt64 { hostList.latestTime }

    /// Every host that is trusted or was until it expired, in the order of adding. `now` comes from
    /// `SteadyTime`.
    public func trustedHosts(at now: UInt64) -> [TrustedHost] {
        var list = hostList
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
        func check() throws(KeybagError) {
            var list = hostList
            list.advance(to: now)
            try list.makeRoom(for: hostID, name, hostsPath)
        }
        try withPasscodeKeys(passcode, check: check) { set throws(KeybagError) in
            try changeHosts(at: now) { (list, effaceable) throws(KeybagError) in
                try list.makeRoom(for: hostID, name, hostsPath)
                var entry = TrustedHostEntry(
                    hostID: hostID, name: name, made: list.latestTime, lastUsed: list.latestTime)
                entry.sealed = try sealedHostSlot(
                    of: entry, set, secret: secret, effaceable: effaceable)
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
        var list = hostList
        if let problem = list.problem { throw problem }
        list.advance(to: now)
        let slotKey = try hostSlotKey(from: keyring, effaceable: currentEffaceable())
        guard let entry = list.hosts.first(where: { $0.hostID == hostID }) else {
            throw KeybagError(.hostUnknown, path: hostsPath, "no such host is trusted")
        }
        guard !list.isExpired(entry) else {
            // Its keys are deleted for good, even if a clock says an earlier time later.
            try? changeHosts(at: now) { (_, _) throws(KeybagError) in }
            throw KeybagError(
                .hostExpired, path: hostsPath, "the host was not used for 30 days: it expired")
        }
        try openHostSlot(of: entry, slotKey, secret: secret, into: target)
    }

    /// Writes down that these hosts are used now, and the time. Does nothing where no host is
    /// trusted.
    public func noteHostUse(
        _ hostIDs: [[UInt8]], keyring: ClassKeyring, at now: UInt64
    ) throws(KeybagError) {
        guard !hostList.hosts.isEmpty else { return }
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
                    .hostUnknown, path: hostsPath,
                    "no host of this name is trusted")
            }
            removed = list.hosts.remove(at: index).hostID
        }
        return removed!
    }

    // MARK: Changing

    /// Changes the list and its file, after the keys of hosts that expired are dropped. Durable on
    /// return; unchanged where it throws.
    private func changeHosts(
        at now: UInt64, using hostIDs: [[UInt8]] = [], _ keyring: ClassKeyring? = nil,
        _ body: (inout TrustedHostList, borrowing SecretBytes) throws(KeybagError) -> Void
    ) throws(KeybagError) {
        try changeHosts { (list, effaceable) throws(KeybagError) in
            // After a reboot class C's key is gone: then only the time is written down.
            if let keyring, !hostIDs.isEmpty,
                let slotKey = try? hostSlotKey(from: keyring, effaceable: effaceable)
            {
                list.latestTime = max(list.latestTime, now)
                try renew(&list, hostIDs, slotKey)
            }
            list.advance(to: now)
            try body(&list, effaceable)
        }
    }

    /// Sets the last use of hosts in use to now, before the caller checks which hosts expired.
    private func renew(
        _ list: inout TrustedHostList, _ hostIDs: [[UInt8]], _ slotKey: borrowing SecretBytes
    ) throws(KeybagError) {
        for index in list.hosts.indices
        where hostIDs.contains(list.hosts[index].hostID) && !list.hosts[index].sealed.isEmpty {
            try setLastUse(of: &list.hosts[index], to: list.latestTime, slotKey)
        }
    }
}

extension TrustedHostList {
    /// Drops the keys of hosts that were not used for too long. A time that is earlier than one
    /// seen before is ignored.
    mutating func advance(to now: UInt64) {
        latestTime = max(latestTime, now)
        for index in hosts.indices where isExpired(hosts[index]) { hosts[index].sealed = [] }
    }

    func isExpired(_ host: TrustedHostEntry) -> Bool {
        host.sealed.isEmpty || host.lastUsed &+ KeybagStore.hostLifetime <= latestTime
    }

    /// Makes room for a host of this name: removes an expired one, or throws.
    mutating func makeRoom(
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
