import CWardLinux
import Glibc
import WardSystem

/// Programs that synchronise directories, recognised by the files that they leave there.
///
/// - Syncthing: `.stfolder` (docs.syncthing.net, users/config, `markerName`), a directory; a file
///   where an old version made it.
/// - Nextcloud and ownCloud: the client's journal and log, as in the clients' own lists of names
///   that they leave out. The journal is `.sync_*.db`, older `._sync_*.db` or `.csync_journal.db`;
///   the log is `.owncloudsync.log` or `.nextcloudsync.log`.
/// - Dropbox: `.dropbox.cache` in the root (help.dropbox.com, "cache folder") and the file
///   `.dropbox` in shared folders. A *directory* `.dropbox` is the program's configuration in a
///   home directory, and says nothing of where it synchronises.
enum SyncTool: String, Sendable {
    case syncthing = "Syncthing"
    case nextcloud = "Nextcloud or ownCloud"
    case dropbox = "Dropbox"

    /// The program that left this entry; nil for other entries. `type` is `d_type` of readdir(3).
    init?(entry name: [UInt8], type: UInt8) {
        guard name.first == UInt8(ascii: ".") else { return nil }
        let isFile = type == UInt8(DT_REG)
        let isDirectory = type == UInt8(DT_DIR)
        switch String(decoding: name, as: UTF8.self) {
        case ".stfolder" where isFile || isDirectory: self = .syncthing
        case ".dropbox.cache" where isDirectory: self = .dropbox
        case ".dropbox" where isFile: self = .dropbox
        case ".owncloudsync.log" where isFile, ".nextcloudsync.log" where isFile,
            ".csync_journal.db" where isFile:
            self = .nextcloud
        case let text
        where isFile && text.hasSuffix(".db")
            && (text.hasPrefix(".sync_") || text.hasPrefix("._sync_")):
            self = .nextcloud
        default: return nil
        }
    }

    /// The nearest directory above `path` (absolute) that one of these programs synchronises.
    static func around(_ path: String) -> (directory: String, tool: SyncTool)? {
        var current = path[...]
        while let slash = current.lastIndex(of: "/"), current != "/" {
            current = slash == current.startIndex ? "/" : current[..<slash]
            let directory = String(current)
            guard let opened = try? OwnedDescriptor(opening: directory, O_RDONLY | O_DIRECTORY)
            else { continue }
            var found: SyncTool?
            try? DirectoryReading.entries(of: opened.rawValue) { entry in
                found = found ?? SyncTool(entry: entry.name, type: entry.type)
            }
            if let found { return (directory, found) }
        }
        return nil
    }
}
