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

    private struct Inode: Hashable {
        var device: dev_t
        var number: ino_t
    }

    private struct Copied {
        var path: [UInt8]
        var inode: Inode
    }

    /// The words of messages.
    struct Words {
        /// Begins each error message.
        var what: String
        /// The names of source and target.
        var source: String
        var target: String
        /// Advice for files that the lock state makes unreadable; nil where the source has no lock
        /// state.
        var lockedHint: String?
    }

    /// The result so far.
    struct Counts {
        var files = 0
        var directories = 0
        /// Files that were there from an earlier run.
        var present = 0
        var bytes = 0
    }

    private let words: Words
    let target: any TreeTarget
    private let targetRoot: Int32
    /// The target has no space left.
    private var isFull = false
    var progress: ProgressLine
    /// The first copied name of each file that has several, with its inode in the target.
    private var links: [Inode: Copied] = [:]
    private var device: dev_t = 0
    var lostAttributes = LostAttributes()
    var counts = Counts()
    private var reports: FailureReports

    var failed: Int { reports.count + lostAttributes.unreported }

    init(_ words: Words, target: any TreeTarget, targetRoot: Int32, _ console: Console) {
        self.words = words
        self.target = target
        self.targetRoot = targetRoot
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
            counts.directories += 1
        } catch {
            report(path, error)
        }
    }

    private func visit(_ name: [UInt8], _ source: Int32, _ copy: Int32, _ directory: [UInt8]) {
        let path = directory.appending(component: name)
        progress.update(
            "\(Text.grouped(counts.files)) files, \(Text.size(bytes: counts.bytes)), \(shown(path))"
        )
        do throws(Errno) {
            let status = try TreeNames.status(name, source)
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
            if error == .noSuchFileOrDirectory, (try? TreeNames.status(name, source)) == nil {
                return
            }
            report(path, error)
        }
    }

    private func makeDirectory(
        _ name: [UInt8], _ source: Int32, _ copy: Int32, _ path: [UInt8]
    ) throws(Errno) {
        let inner = try TreeNames.open(name, source, O_RDONLY | O_DIRECTORY)
        var isNew = true
        do throws(Errno) {
            try NodeName(bytes: name).withCString { name throws(Errno) in
                try Syscall.mkdirat(copy, name, 0o700)
            }
        } catch {
            guard error == .fileExists else { throw error }
            guard try TreeNames.status(name, copy).st_mode & S_IFMT == S_IFDIR else {
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
            return try TreeNames.open(name, directory, O_RDONLY | O_DIRECTORY)
        } catch {
            guard error == .permissionDenied else { throw error }
        }
        let node = try TreeNames.open(name, directory, OpenFlag.path)
        guard try Syscall.fstat(node.rawValue).st_mode & S_IFMT == S_IFDIR else {
            throw .notDirectory
        }
        try TreeNames.setMode(of: node, 0o700)
        return try TreeNames.open(name, directory, O_RDONLY | O_DIRECTORY)
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
            if let made = try? TreeNames.status(name, copy) {
                links[inode] = Copied(
                    path: path, inode: Inode(device: made.st_dev, number: made.st_ino))
            }
            return true
        }
        if let there = try? TreeNames.status(name, copy) {
            if Inode(device: there.st_dev, number: there.st_ino) == first.inode {
                counts.present += 1
                return true
            }
            guard try mayReplace(path, isSame: false) else { return false }
            try TreeNames.unlink(name, copy)
        }
        do throws(Errno) {
            try NodeName(bytes: name).withCString { name throws(Errno) in
                try Syscall.linkat(
                    AT_FDCWD, "/proc/self/fd/\(original.rawValue)", copy, name,
                    flags: AT_SYMLINK_FOLLOW)
            }
            counts.files += 1
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
            guard
                let next = try? TreeNames.open(
                    Array(rest[..<slash]), here, OpenFlag.path | O_DIRECTORY)
            else { return nil }
            directory = consume next
            rest = rest[(slash + 1)...]
        }
        let here = directory?.rawValue ?? targetRoot
        guard let found = try? TreeNames.open(Array(rest), here, OpenFlag.path),
            let status = try? Syscall.fstat(found.rawValue),
            Inode(device: status.st_dev, number: status.st_ino) == copied.inode
        else { return nil }
        directory = nil
        return found
    }

    // MARK: Reports

    /// Returns false where the existing file stays; reports a refusal.
    func mayReplace(_ path: [UInt8], isSame: Bool) throws(Errno) -> Bool {
        switch target.occupied(isSame: isSame) {
        case .skip:
            counts.present += 1
            return false
        case .replace: return true
        case .refuse:
            report(
                path, why: "there is another file of that name, which is not overwritten",
                hint: "move one of the two away, then run it again")
            return false
        }
    }

    func shown(_ path: [UInt8]) -> String {
        path.isEmpty
            ? words.source : Path.joined(words.source, String(decoding: path, as: UTF8.self))
    }

    func report(_ path: [UInt8], _ error: Errno) {
        if let meaning = target.meaning(of: error, at: path) {
            return report(path, why: meaning.why, hint: meaning.hint)
        }
        if error == .noSpace || error == .diskQuotaExceeded {
            isFull = true
            return report(
                CommandFailure(
                    words.what, shown(path), errno: error,
                    hint: "make room: df -h \(Text.shellQuoted(words.target)), then run it again"))
        }
        if error == .notPermitted, let hint = words.lockedHint {
            return report(
                CommandFailure(
                    words.what, shown(path),
                    why: "its class can't be read or written in this lock state",
                    hint: hint, status: .locked))
        }
        report(CommandFailure(words.what, shown(path), errno: error))
    }

    func report(_ path: [UInt8], why: String, hint: String? = nil) {
        report(CommandFailure(words.what, shown(path), why: why, hint: hint, status: .badData))
    }

    func report(_ failure: CommandFailure) {
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
