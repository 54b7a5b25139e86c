import CWardLinux
import Glibc
import WardConsole
import WardSystem

// Files, links and special files of a copied tree, each with its own attributes.
extension TreeCopy {
    func copyFile(
        _ name: [UInt8], _ source: Int32, _ copy: Int32, _ path: [UInt8], _ status: FileStatus
    ) throws(Errno) -> Bool {
        var replaces = false
        if let there = try? TreeNames.status(name, copy) {
            let isSame =
                there.st_mode & S_IFMT == S_IFREG && there.st_size == status.st_size
                && TreeNames.isEqual(there.st_mtim, status.st_mtim)
            guard try mayReplace(path, isSame: isSame) else { return isSame }
            replaces = true
        }
        for _ in 0..<3 {
            let file = try TreeNames.open(name, source, O_RDONLY | O_NONBLOCK)
            let before = try Syscall.fstat(file.rawValue)
            guard before.st_mode & S_IFMT == S_IFREG else { throw .noSuchFileOrDirectory }
            let made = try target.makeFile(in: copy, path, from: file.rawValue)
            do throws(Errno) {
                let done = counts.bytes
                try FileContent.copy(
                    from: file.rawValue, to: made.rawValue, sizeBytes: Int(before.st_size),
                    mayHaveHoles: Int(before.st_blocks) * 512 < Int(before.st_size)
                ) { offset in
                    counts.bytes = done.clampedSum(offset)
                    progress.update(
                        "\(Text.grouped(counts.files)) files, \(Text.size(bytes: counts.bytes)), \(shown(path))"
                    )
                }
                counts.bytes = done.clampedSum(Int(before.st_size))
                let after = try Syscall.fstat(file.rawValue)
                guard after.st_size == before.st_size,
                    TreeNames.isEqual(after.st_mtim, before.st_mtim)
                else {
                    counts.bytes = done
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
            counts.files += 1
            return true
        }
        report(
            path, why: "it was changed each time while it was copied",
            hint: "run it again when the program that writes it is done")
        return false
    }

    func copyLink(
        _ name: [UInt8], _ source: Int32, _ copy: Int32, _ path: [UInt8], _ status: FileStatus
    ) throws(Errno) {
        let target = try TreeNames.readLink(name, source)
        if let there = try? TreeNames.status(name, copy) {
            let isSame =
                there.st_mode & S_IFMT == S_IFLNK && (try? TreeNames.readLink(name, copy)) == target
            guard try mayReplace(path, isSame: isSame) else { return }
            try TreeNames.unlink(name, copy)
        }
        try NodeName(bytes: target).withCString { target throws(Errno) in
            try NodeName(bytes: name).withCString { name throws(Errno) in
                try Syscall.symlinkat(target: target, copy, name)
            }
        }
        try finishByName(name, copy, status)
        counts.files += 1
    }

    func copySpecial(
        _ name: [UInt8], _ copy: Int32, _ path: [UInt8], _ status: FileStatus
    ) throws(Errno) -> Bool {
        if let there = try? TreeNames.status(name, copy) {
            let isSame =
                there.st_mode & S_IFMT == status.st_mode & S_IFMT
                && there.st_rdev == status.st_rdev
            guard try mayReplace(path, isSame: isSame) else { return isSame }
            try TreeNames.unlink(name, copy)
        }
        try NodeName(bytes: name).withCString { name throws(Errno) in
            try Syscall.mknodat(copy, name, status.st_mode & S_IFMT | 0o600, status.st_rdev)
        }
        try finishByName(name, copy, status)
        counts.files += 1
        return true
    }

    /// Sets owner, mode and times of a file that can't be opened. Removes the file where that
    /// fails.
    func finishByName(
        _ name: [UInt8], _ copy: Int32, _ status: FileStatus
    ) throws(Errno) {
        do throws(Errno) {
            // One descriptor for all calls: in a directory that another user may write, the name
            // may belong to another file by now.
            let node = try TreeNames.open(name, copy, OpenFlag.path)
            let made = try Syscall.fstat(node.rawValue)
            guard made.st_mode & S_IFMT == status.st_mode & S_IFMT, made.st_nlink <= 1 else {
                throw .noSuchFileOrDirectory
            }
            if geteuid() == 0 {
                let changed = Glibc.fchownat(
                    node.rawValue, "", status.st_uid, status.st_gid, TreeNames.emptyPath)
                guard changed == 0 else { throw Errno(rawValue: errno) }
            }
            if status.st_mode & S_IFMT != S_IFLNK {
                try TreeNames.setMode(of: node, status.st_mode & 0o7777)
            }
            try NodeName(bytes: name).withCString { text throws(Errno) in
                try Syscall.utimensat(
                    copy, text, access: status.st_atim, modification: status.st_mtim)
            }
        } catch {
            try? TreeNames.unlink(name, copy)
            throw error
        }
    }
}
