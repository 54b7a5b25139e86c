import Glibc
import WardConsole
import WardFormat
import WardSystem

/// The mark of a synchronised directory, through the attribute `user.ward.synced`.
enum SyncMark {
    /// The value of a directory's own mark.
    static let marked = "marked"

    /// The absolute path of a directory in a mounted volume. Throws a failure that says what the
    /// path is instead.
    static func directory(_ path: String, _ what: String) throws(CommandFailure) -> String {
        let real: String
        let status: FileStatus
        do throws(Errno) {
            real = try Path.real(path)
            status = try Syscall.stat(real)
        } catch {
            throw CommandFailure(what, path, errno: error)
        }
        guard FileClass.isOnWard(real) else { throw FileClass.notOnWard(what, path) }
        guard status.st_mode & S_IFMT == S_IFDIR else {
            throw CommandFailure(
                what, path, why: "only directories are marked",
                hint: "name its directory: \(Text.shellQuoted(Path.parent(path)))",
                status: .badData)
        }
        return real
    }

    static func set(_ path: String, _ what: String) throws(CommandFailure) {
        do throws(Errno) {
            try ExtendedAttribute.set(ExtendedAttribute.wardSynced, marked, path: path)
        } catch {
            throw failure(what, path, error)
        }
    }

    static func remove(_ path: String, _ what: String) throws(CommandFailure) {
        do throws(Errno) {
            try ExtendedAttribute.remove(ExtendedAttribute.wardSynced, path: path)
        } catch .noData {
            if let above = around(path) {
                throw CommandFailure(
                    what, path, why: "it has no mark of its own: it lies in \(above)",
                    hint: "ward sync unmark \(Text.shellQuoted(above))", status: .badData)
            }
            throw CommandFailure(
                what, path, why: "it is not marked", hint: "ward sync list", status: .badData)
        } catch {
            throw failure(what, path, error)
        }
    }

    /// The marked directory around a path; nil without one.
    private static func around(_ path: String) -> String? {
        var current = path
        while current != "/" {
            current = Path.parent(current)
            guard
                let value = try? ExtendedAttribute.text(
                    of: ExtendedAttribute.wardSynced, path: current)
            else { return nil }
            if value == marked { return current }
        }
        return nil
    }

    private static func failure(_ what: String, _ path: String, _ error: Errno) -> CommandFailure {
        // A daemon of an older version does not have the attribute.
        guard error == .notSupported else { return CommandFailure(what, path, errno: error) }
        return CommandFailure(
            what, path, why: "its daemon knows no marks",
            hint: "unmount it and mount it with this version of ward", status: .unavailable)
    }
}
