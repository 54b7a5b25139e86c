import Glibc
import WardConsole
import WardSystem

// Owner, mode, times and extended attributes of a copy.
extension TreeCopy {
    /// Sets the mode after all writes, because it may deny them to the owner; the times come last.
    func finish(_ copy: Int32, _ status: FileStatus) throws(Errno) {
        try Syscall.fchmod(copy, status.st_mode & 0o7777)
        try Syscall.futimens(copy, access: status.st_atim, modification: status.st_mtim)
    }

    /// Copies the owner, then extended attributes: chown(2) drops set-user-ID bits and
    /// capabilities.
    func copyAttributes(
        _ source: Int32, _ copy: Int32, _ status: FileStatus, _ path: [UInt8]
    ) throws(Errno) {
        if geteuid() == 0 { try Syscall.fchown(copy, status.st_uid, status.st_gid) }
        for name in (try? ExtendedAttribute.names(descriptor: source)) ?? []
        where !TreeCopy.isVirtual(name) {
            do throws(Errno) {
                let value: [UInt8]
                do throws(Errno) {
                    value = try ExtendedAttribute.value(of: name, descriptor: source)
                } catch {
                    if error == .noData { continue }
                    throw error
                }
                try ExtendedAttribute.set(name, value, descriptor: copy)
            } catch {
                noteLost(name, path, error)
            }
        }
    }

    /// Attributes that a ward volume computes. The class is not copied as an attribute: it is set
    /// before the first byte.
    static func isVirtual(_ name: String) -> Bool {
        [
            "user.ward.class", "user.ward.synced", "user.ward.volume", "user.ward.socket",
            ImportTarget.marker,
        ].contains(name)
    }

    private func noteLost(_ name: String, _ path: [UInt8], _ error: Errno) {
        guard lostAttributes.isNew(name, error) else { return }
        report(
            CommandFailure(
                "cannot keep the attribute \(Text.printable(name)) of", shown(path), errno: error,
                hint: "others of the kind are not reported"))
    }
}

/// The kinds of attributes that a target did not take. Each kind is reported once: in a place
/// without attributes, every file fails alike.
struct LostAttributes {
    private var kinds: Set<String> = []
    /// The number of attributes of a kind that was already reported.
    private(set) var unreported = 0

    /// Notes an attribute. Returns whether its kind is new and has to be reported.
    mutating func isNew(_ name: String, _ error: Errno) -> Bool {
        let kind = String(name.prefix { $0 != "." })
        // Only root may set attributes outside `user`.
        if error == .notPermitted, geteuid() != 0, kind != "user" { return false }
        guard kinds.insert("\(kind) \(error.rawValue)").inserted else {
            unreported += 1
            return false
        }
        return true
    }
}
