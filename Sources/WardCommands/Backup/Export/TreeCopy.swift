import CWardLinux
import Glibc
import WardConsole
import WardSystem

/// The destination of a copied tree. It handles taken names, makes files, and keeps further data
/// beside them.
protocol TreeTarget: AnyObject {
    /// Decides about a name that is taken. `isSame`: by a file of the same kind, size and time.
    func occupied(isSame: Bool) -> TreeCopy.Conflict
    /// Makes a file that has no name yet.
    func makeFile(
        in directory: Int32, _ path: [UInt8], from source: Int32
    ) throws(Errno) -> OwnedDescriptor
    /// Gives a complete file its name.
    func publish(
        _ file: borrowing OwnedDescriptor, as name: [UInt8], in directory: Int32, replacing: Bool
    ) throws(Errno)
    /// Removes a file that was made and not published.
    func discard()
    /// Called for each directory: new, or existing (`isNew` false). Returns false where the
    /// directory keeps its own attributes.
    func enter(
        _ directory: Int32, _ path: [UInt8], from source: Int32, isNew: Bool
    ) throws(Errno) -> Bool
    /// Called when a directory is complete, with all attributes but mode and times. A directory
    /// that keeps its own attributes gets no call.
    func leave(_ directory: Int32) throws(Errno)
    /// Called when a file of the source has its copy. `name` is in the directory `source`.
    func keeps(_ name: [UInt8], in source: Int32, _ path: [UInt8])
    /// Called for a name in the target that the source does not have.
    func surplus(_ path: [UInt8])
    /// Explains an error of a path where the error number alone does not.
    func meaning(of error: Errno, at path: [UInt8]) -> (why: String, hint: String)?
}

/// Copies a tree with modes, times, owners (as root), extended attributes, links, special files and
/// holes. A name appears when its file is complete. A failure is reported and the copy goes on. A
/// later run continues.
final class TreeCopy {
    enum Conflict { case skip, replace, refuse }

    /// `AT_EMPTY_PATH`, which Swift does not import.
    private static let emptyPath: Int32 = 0x1000

    private struct Inode: Hashable {
        var device: dev_t
        var number: ino_t
    }

    private struct Copied {
        var path: [UInt8]
        var inode: Inode
    }

    private let what: String
    /// The source's name in messages.
    private let shownRoot: String
    private let target: any TreeTarget
    private let targetRoot: Int32
    private let console: Console
    private let lockedHint: String?
    /// The target's name in messages.
    private let shownTarget: String
    /// The target has no space left.
    private var isFull = false
    private var progress: ProgressLine
    /// The first copied name of each file that has several, with its inode in the target.
    private var links: [Inode: Copied] = [:]
    private var device: dev_t = 0
    private var lostAttributes: Set<String> = []

    private(set) var files = 0
    private(set) var directories = 0
    /// Files that were there from an earlier run.
    private(set) var present = 0
    private(set) var bytes = 0
    var failed: Int { reports.count + alsoLost }
    private var reports: FailureReports
    /// Lost attributes of a kind that was already reported.
    private var alsoLost = 0

    /// `what` begins each error message. `lockedHint`: advice for files that the lock state makes
    /// unreadable; nil where the source has no lock state.
    init(
        what: String, shownRoot: String, target: any TreeTarget, targetRoot: Int32,
        shownTarget: String, lockedHint: String?, _ console: Console
    ) {
        self.what = what
        self.shownRoot = shownRoot
        self.shownTarget = shownTarget
        self.target = target
        self.targetRoot = targetRoot
        self.console = console
        self.lockedHint = lockedHint
        progress = ProgressLine(console)
        reports = FailureReports(console)
    }

    /// Copies the content of the root; its attributes too where the target wants them. `isNew`: the
    /// target's root was made for this copy.
    func run(from source: Int32, isNew: Bool = false) throws(Errno) {
        InterruptionNote.arm("\nward: note: interrupted: run it again to go on where it was\n")
        device = try Syscall.fstat(source).st_dev
        copyDirectory(source, targetRoot, [], isNew: isNew)
        progress.clear()
        reports.finish()
    }

    // MARK: Directories

    private func copyDirectory(
        _ source: Int32, _ copy: Int32, _ path: [UInt8], isNew: Bool
    ) {
        do throws(Errno) {
            let takesAttributes = try target.enter(copy, path, from: source, isNew: isNew)
            let names = try DirectoryReading.names(in: source)
            for name in names where !isFull { visit(name, source, copy, path) }
            // The directory is incomplete: a later run goes on.
            if isFull { return }
            let known = Set(names)
            for name in try DirectoryReading.names(in: copy) where !known.contains(name) {
                target.surplus(path.appending(component: name))
            }
            if takesAttributes {
                let status = try Syscall.fstat(source)
                try copyAttributes(source, copy, status, path)
                try target.leave(copy)
                try finish(copy, status)
            }
            directories += 1
        } catch {
            report(path, error)
        }
    }

    private func visit(_ name: [UInt8], _ source: Int32, _ copy: Int32, _ directory: [UInt8]) {
        let path = directory.appending(component: name)
        progress.update("\(Text.grouped(files)) files, \(Text.size(bytes: bytes)), \(shown(path))")
        do throws(Errno) {
            let status = try status(name, source)
            guard status.st_dev == device else {
                return report(path, why: "something else is mounted there")
            }
            switch status.st_mode & S_IFMT {
            case S_IFDIR: try makeDirectory(name, source, copy, path)
            case S_IFREG:
                let hasCopy = try link(name, copy, path, status) { () throws(Errno) in
                    try self.copyFile(name, source, copy, path, status)
                }
                // Also where an attribute was lost: the class was kept.
                if hasCopy { target.keeps(name, in: source, path) }
            case S_IFLNK: try copyLink(name, source, copy, path, status)
            default:
                _ = try link(name, copy, path, status) { () throws(Errno) in
                    try self.copySpecial(name, copy, path, status)
                }
            }
        } catch {
            // A file that was removed meanwhile is not copied.
            if error == .noSuchFileOrDirectory, (try? self.status(name, source)) == nil { return }
            report(path, error)
        }
    }

    private func makeDirectory(
        _ name: [UInt8], _ source: Int32, _ copy: Int32, _ path: [UInt8]
    ) throws(Errno) {
        let inner = try open(name, source, O_RDONLY | O_DIRECTORY)
        var isNew = true
        do throws(Errno) {
            try NodeName(bytes: name).withCString { name throws(Errno) in
                try Syscall.mkdirat(copy, name, 0o700)
            }
        } catch {
            guard error == .fileExists else { throw error }
            guard try status(name, copy).st_mode & S_IFMT == S_IFDIR else {
                return report(
                    path, why: "there is another file of that name",
                    hint: "move one of the two away, then run it again")
            }
            isNew = false
        }
        let made = try openMade(name, copy)
        copyDirectory(inner.rawValue, made.rawValue, path, isNew: isNew)
    }

    /// Opens a directory in the target. An earlier run may have finished it and taken its owner's
    /// permissions away.
    private func openMade(
        _ name: [UInt8], _ directory: Int32
    ) throws(Errno) -> OwnedDescriptor {
        do throws(Errno) {
            return try open(name, directory, O_RDONLY | O_DIRECTORY)
        } catch {
            guard error == .permissionDenied else { throw error }
        }
        let node = try open(name, directory, OpenFlag.path)
        guard try Syscall.fstat(node.rawValue).st_mode & S_IFMT == S_IFDIR else {
            throw .notDirectory
        }
        try setMode(of: node, 0o700)
        return try open(name, directory, O_RDONLY | O_DIRECTORY)
    }

    // MARK: Files

    /// Links the name to an earlier copy of the same file; without one calls `body`. Both return
    /// whether the name now belongs to the copy.
    private func link(
        _ name: [UInt8], _ copy: Int32, _ path: [UInt8], _ status: FileStatus,
        _ body: () throws(Errno) -> Bool
    ) throws(Errno) -> Bool {
        guard status.st_nlink > 1 else { return try body() }
        let inode = Inode(device: status.st_dev, number: status.st_ino)
        guard let first = links[inode], let original = openCopied(first) else {
            guard try body() else { return false }
            if let made = try? self.status(name, copy) {
                links[inode] = Copied(
                    path: path, inode: Inode(device: made.st_dev, number: made.st_ino))
            }
            return true
        }
        if let there = try? self.status(name, copy) {
            if Inode(device: there.st_dev, number: there.st_ino) == first.inode {
                present += 1
                return true
            }
            guard try mayReplace(path, isSame: false) else { return false }
            try unlink(name, copy)
        }
        do throws(Errno) {
            try NodeName(bytes: name).withCString { name throws(Errno) in
                try Syscall.linkat(
                    AT_FDCWD, "/proc/self/fd/\(original.rawValue)", copy, name,
                    flags: AT_SYMLINK_FOLLOW)
            }
            files += 1
            return true
        } catch {
            // The target has no hard links or too many for this file: make a copy.
            guard error == .notPermitted || error == .notSupported || error == .tooManyLinks
            else { throw error }
            return try body()
        }
    }

    /// Opens the earlier copy by its path; nil where the path leads elsewhere now. Another user may
    /// own directories that are finished.
    private func openCopied(_ copied: Copied) -> OwnedDescriptor? {
        var directory: OwnedDescriptor?
        var rest = copied.path[...]
        while let slash = rest.firstIndex(of: UInt8(ascii: "/")) {
            let here = directory?.rawValue ?? targetRoot
            guard let next = try? open(Array(rest[..<slash]), here, OpenFlag.path | O_DIRECTORY)
            else { return nil }
            directory = consume next
            rest = rest[(slash + 1)...]
        }
        let here = directory?.rawValue ?? targetRoot
        guard let found = try? open(Array(rest), here, OpenFlag.path),
            let status = try? Syscall.fstat(found.rawValue),
            Inode(device: status.st_dev, number: status.st_ino) == copied.inode
        else { return nil }
        directory = nil
        return found
    }

    private func copyFile(
        _ name: [UInt8], _ source: Int32, _ copy: Int32, _ path: [UInt8], _ status: FileStatus
    ) throws(Errno) -> Bool {
        var replaces = false
        if let there = try? self.status(name, copy) {
            let isSame =
                there.st_mode & S_IFMT == S_IFREG && there.st_size == status.st_size
                && isEqual(there.st_mtim, status.st_mtim)
            guard try mayReplace(path, isSame: isSame) else { return isSame }
            replaces = true
        }
        for _ in 0..<3 {
            let file = try open(name, source, O_RDONLY | O_NONBLOCK)
            let before = try Syscall.fstat(file.rawValue)
            guard before.st_mode & S_IFMT == S_IFREG else { throw .noSuchFileOrDirectory }
            let made = try target.makeFile(in: copy, path, from: file.rawValue)
            do throws(Errno) {
                let done = bytes
                try FileContent.copy(
                    from: file.rawValue, to: made.rawValue, sizeBytes: Int(before.st_size),
                    mayHaveHoles: Int(before.st_blocks) * 512 < Int(before.st_size)
                ) { offset in
                    bytes = done.clampedSum(offset)
                    progress.update(
                        "\(Text.grouped(files)) files, \(Text.size(bytes: bytes)), \(shown(path))")
                }
                bytes = done.clampedSum(Int(before.st_size))
                let after = try Syscall.fstat(file.rawValue)
                guard after.st_size == before.st_size, isEqual(after.st_mtim, before.st_mtim)
                else {
                    bytes = done
                    target.discard()
                    continue
                }
                try copyAttributes(file.rawValue, made.rawValue, before, path)
                try finish(made.rawValue, before)
                try target.publish(made, as: name, in: copy, replacing: replaces)
            } catch {
                target.discard()
                throw error
            }
            files += 1
            return true
        }
        report(
            path, why: "it was changed each time while it was copied",
            hint: "run it again when the program that writes it is done")
        return false
    }

    private func copyLink(
        _ name: [UInt8], _ source: Int32, _ copy: Int32, _ path: [UInt8], _ status: FileStatus
    ) throws(Errno) {
        let target = try readLink(name, source)
        if let there = try? self.status(name, copy) {
            let isSame =
                there.st_mode & S_IFMT == S_IFLNK && (try? readLink(name, copy)) == target
            guard try mayReplace(path, isSame: isSame) else { return }
            try unlink(name, copy)
        }
        try NodeName(bytes: target).withCString { target throws(Errno) in
            try NodeName(bytes: name).withCString { name throws(Errno) in
                try Syscall.symlinkat(target: target, copy, name)
            }
        }
        try finishByName(name, copy, status)
        files += 1
    }

    private func copySpecial(
        _ name: [UInt8], _ copy: Int32, _ path: [UInt8], _ status: FileStatus
    ) throws(Errno) -> Bool {
        if let there = try? self.status(name, copy) {
            let isSame =
                there.st_mode & S_IFMT == status.st_mode & S_IFMT
                && there.st_rdev == status.st_rdev
            guard try mayReplace(path, isSame: isSame) else { return isSame }
            try unlink(name, copy)
        }
        try NodeName(bytes: name).withCString { name throws(Errno) in
            try Syscall.mknodat(copy, name, status.st_mode & S_IFMT | 0o600, status.st_rdev)
        }
        try finishByName(name, copy, status)
        files += 1
        return true
    }

    /// Sets owner, mode and times of a file that can't be opened. Removes the file where that
    /// fails.
    private func finishByName(
        _ name: [UInt8], _ copy: Int32, _ status: FileStatus
    ) throws(Errno) {
        do throws(Errno) {
            // One descriptor for all calls: in a directory that another user may write, the name
            // may belong to another file by now.
            let node = try open(name, copy, OpenFlag.path)
            let made = try Syscall.fstat(node.rawValue)
            guard made.st_mode & S_IFMT == status.st_mode & S_IFMT, made.st_nlink <= 1 else {
                throw .noSuchFileOrDirectory
            }
            if geteuid() == 0 {
                let changed = Glibc.fchownat(
                    node.rawValue, "", status.st_uid, status.st_gid, TreeCopy.emptyPath)
                guard changed == 0 else { throw Errno(rawValue: errno) }
            }
            if status.st_mode & S_IFMT != S_IFLNK { try setMode(of: node, status.st_mode & 0o7777) }
            try NodeName(bytes: name).withCString { text throws(Errno) in
                try Syscall.utimensat(
                    copy, text, access: status.st_atim, modification: status.st_mtim)
            }
        } catch {
            try? unlink(name, copy)
            throw error
        }
    }

    /// `node` was opened with `O_PATH` and is no symbolic link.
    private func setMode(of node: borrowing OwnedDescriptor, _ mode: mode_t) throws(Errno) {
        try Syscall.fchmodat(AT_FDCWD, "/proc/self/fd/\(node.rawValue)", mode)
    }

    // MARK: Attributes

    /// Sets the mode after all writes, because it may deny them to the owner; the times come last.
    private func finish(_ copy: Int32, _ status: FileStatus) throws(Errno) {
        try Syscall.fchmod(copy, status.st_mode & 0o7777)
        try Syscall.futimens(copy, access: status.st_atim, modification: status.st_mtim)
    }

    /// Copies the owner, then extended attributes: chown(2) drops set-user-ID bits and
    /// capabilities.
    private func copyAttributes(
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

    /// Reports each kind once: in a place without attributes, every file fails alike.
    private func noteLost(_ name: String, _ path: [UInt8], _ error: Errno) {
        let kind = String(name.prefix { $0 != "." })
        // Only root may set attributes outside `user`.
        if error == .notPermitted, geteuid() != 0, kind != "user" { return }
        guard lostAttributes.insert("\(kind) \(error.rawValue)").inserted else {
            alsoLost += 1
            return
        }
        report(
            CommandFailure(
                "cannot keep the attribute \(Text.printable(name)) of", shown(path), errno: error,
                hint: "others of the kind are not reported"))
    }

    // MARK: Small things

    /// Returns false where the existing file stays; reports a refusal.
    private func mayReplace(_ path: [UInt8], isSame: Bool) throws(Errno) -> Bool {
        switch target.occupied(isSame: isSame) {
        case .skip:
            present += 1
            return false
        case .replace: return true
        case .refuse:
            report(
                path, why: "there is another file of that name, which is not overwritten",
                hint: "move one of the two away, then run it again")
            return false
        }
    }

    private func status(_ name: [UInt8], _ directory: Int32) throws(Errno) -> FileStatus {
        try NodeName(bytes: name).withCString { name throws(Errno) in
            try Syscall.fstatat(directory, name)
        }
    }

    private func unlink(_ name: [UInt8], _ directory: Int32) throws(Errno) {
        try NodeName(bytes: name).withCString { name throws(Errno) in
            try Syscall.unlinkat(directory, name)
        }
    }

    private func open(
        _ name: [UInt8], _ directory: Int32, _ flags: Int32
    ) throws(Errno) -> OwnedDescriptor {
        OwnedDescriptor(
            adopting: try NodeName(bytes: name).withCString { name throws(Errno) in
                try Syscall.openat(directory, name, flags | O_NOFOLLOW | O_NOCTTY)
            })
    }

    private func readLink(_ name: [UInt8], _ directory: Int32) throws(Errno) -> [UInt8] {
        var buffer = [UInt8](repeating: 0, count: 4096)
        let count = try NodeName(bytes: name).withCString { name throws(Errno) in
            try Syscall.readlinkat(directory, name, &buffer, buffer.count)
        }
        return Array(buffer[0..<count])
    }

    private func isEqual(_ one: timespec, _ other: timespec) -> Bool {
        one.tv_sec == other.tv_sec && one.tv_nsec == other.tv_nsec
    }

    private func shown(_ path: [UInt8]) -> String {
        path.isEmpty ? shownRoot : Path.joined(shownRoot, String(decoding: path, as: UTF8.self))
    }

    private func report(_ path: [UInt8], _ error: Errno) {
        if let meaning = target.meaning(of: error, at: path) {
            return report(path, why: meaning.why, hint: meaning.hint)
        }
        if error == .noSpace || error == .diskQuotaExceeded {
            isFull = true
            return report(
                CommandFailure(
                    what, shown(path), errno: error,
                    hint: "make room: df -h \(Text.shellQuoted(shownTarget)), then run it again"))
        }
        if error == .notPermitted, let lockedHint {
            return report(
                CommandFailure(
                    what, shown(path), why: "its class can't be read or written in this lock state",
                    hint: lockedHint, status: .locked))
        }
        report(CommandFailure(what, shown(path), errno: error))
    }

    private func report(_ path: [UInt8], why: String, hint: String? = nil) {
        report(CommandFailure(what, shown(path), why: why, hint: hint, status: .badData))
    }

    private func report(_ failure: CommandFailure) {
        progress.clear()
        reports.add(failure)
    }
}

extension [UInt8] {
    /// The path with one more component.
    func appending(component: [UInt8]) -> [UInt8] {
        isEmpty ? component : self + [UInt8(ascii: "/")] + component
    }
}
