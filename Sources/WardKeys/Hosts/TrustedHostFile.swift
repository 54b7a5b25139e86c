import WardCrypto
import WardFormat
import WardSystem

/// The `trusted-hosts` file on disk. During a change of the policy, a second file beside it has the
/// hosts under the next effaceable key.
struct TrustedHostFile {
    let path: String
    let uuid: [UInt8]
    let storage: any KeyStorage

    private var nextPath: String { path + ".next" }

    private enum Found {
        case absent
        case table(TrustedHostTable)
        /// Damaged, or not authentic with this key: another device's, or older than a change of the
        /// passcode.
        case worthless
    }

    /// The table that is valid with this key; finishes an interrupted change. Wipes worthless
    /// files, and says so in `note`. Throws `newerVersion` and `system`.
    func load(
        macKey: borrowing SecretBytes
    ) throws(KeybagError) -> (table: TrustedHostTable?, note: String?) {
        let current = try read(path, macKey)
        if case .table(let table) = current {
            try? dropNext()
            return (table, nil)
        }
        let next = try read(nextPath, macKey)
        if case .table(let table) = next {
            try? adoptNext()
            return (table, "\(path): an interrupted change was finished")
        }
        if case .absent = current, case .absent = next { return (nil, nil) }
        try? destroy()
        return (
            nil,
            "\(path): not of this device, from before a change of the passcode, or damaged: no host is "
                + "trusted any more"
        )
    }

    private func read(_ path: String, _ macKey: borrowing SecretBytes) throws(KeybagError) -> Found
    {
        guard
            let bytes = try storage.readIfThere(
                path, limit: TrustedHostTable.maximumBytes, "the trusted hosts")
        else { return .absent }
        let table: TrustedHostTable
        do throws(FormatError) {
            table = try TrustedHostTable(reading: bytes)
        } catch {
            if error.code == .newerVersion { throw .format(error, path) }
            return .worthless
        }
        let isAuthentic = table.authenticated.withUnsafeBytes { message in
            table.mac.withUnsafeBytes { HMACSHA256.verify($0[...], of: message, key: macKey) }
        }
        return table.uuid == uuid && isAuthentic ? .table(table) : .worthless
    }

    /// Replaces the file durably, and wipes the old file, so that removed slots are gone.
    func store(
        _ table: TrustedHostTable, macKey: borrowing SecretBytes, asNext: Bool = false
    ) throws(KeybagError) {
        var table = table
        table.mac = HMACSHA256.authenticate(table.authenticated, key: macKey)
        let path = asNext ? nextPath : path
        let bytes = table.serialized
        precondition((try? TrustedHostTable(reading: bytes)) == table, "a table reads back")
        do throws(Errno) {
            var secret = try SecretBytes(zeroed: bytes.count)
            secret.withUnsafeMutableBytes { $0.copyBytes(from: bytes) }
            try storage.replaceSecret(path, with: secret)
        } catch {
            throw .system(error, path, "can't store the trusted hosts")
        }
    }

    /// Replaces the file by the next one.
    func adoptNext() throws(Errno) {
        let old = try storage.openForWiping(path)
        do throws(Errno) {
            try storage.rename(nextPath, to: path)
            try storage.sync(Paths.parent(of: path))
        } catch {
            if let old { storage.close(old) }
            throw error
        }
        if let old { try storage.wipe(old) }
    }

    func dropNext() throws(Errno) { try storage.destroySecret(nextPath) }

    /// Wipes all files of hosts: afterwards no host is trusted.
    func destroy() throws(Errno) {
        // Try all, even after a failure. The current file goes last: a leftover next file would
        // take its place after a power cut.
        var failure: Errno?
        for path in [nextPath + ".new", nextPath, path + ".new", path] {
            do throws(Errno) {
                try storage.destroySecret(path)
            } catch {
                failure = error
            }
        }
        if let failure { throw failure }
    }
}
