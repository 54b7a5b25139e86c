import CWardLinux
import Glibc
import WardSystem

// Renames. Some NFS and FUSE backing stores answer `EINVAL` to all flags but none.
extension Volume {
    /// Renames a file or directory. `flags`: 0, `RENAME_NOREPLACE` or `RENAME_EXCHANGE`;
    /// `RENAME_WHITEOUT` alone or with the first (rename(2)). A whiteout is a character device 0/0
    /// under the old name, which overlayfs takes for a removed file. Throws `EINVAL` if the backing
    /// store has no such rename.
    public func rename(
        _ oldParent: NodeID, _ oldName: UnsafeRawBufferPointer, _ newParent: NodeID,
        _ newName: UnsafeRawBufferPointer, flags: UInt32, caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) {
        guard [0, renameNoReplace, renameExchange].contains(flags & ~renameWhiteout),
            flags != renameExchange | renameWhiteout
        else { throw .invalidArgument }
        let isMove = bindsPlaces && oldParent != newParent
        try names.withDirectoryMove(if: isMove) { () throws(Errno) in
            try backing.withNames(
                oldName, in: node(oldParent), to: context.nameA,
                newName, in: node(newParent), to: context.nameB
            ) { old, new throws(Errno) in
                names.changes.begin()
                defer { names.changes.end() }
                let rename = try Rename(self, old, new, flags: flags, caller, context)
                if !rename.isWithinOneFile { try rename.run() }
                if isMove {
                    backing.noteChange(in: old.parent)
                    backing.noteChange(in: new.parent)
                }
            }
        }
    }

    /// Renames to a free name. Throws `EEXIST` if the name is taken.
    ///
    /// Without support for the flag, a directory is renamed plainly. That fails if the target
    /// exists, which holds a record or is no directory. Other files get the new name first, and
    /// then lose the old one.
    func renameToFreeName(
        _ fromDirectory: Int32, _ old: UnsafePointer<CChar>, _ toDirectory: Int32,
        _ new: UnsafePointer<CChar>, isDirectory: Bool
    ) throws(Errno) {
        do throws(Errno) {
            try storage.renameat(fromDirectory, old, toDirectory, new, flags: renameNoReplace)
        } catch .invalidArgument {
            guard isDirectory else {
                try storage.linkat(fromDirectory, old, toDirectory, new)
                do throws(Errno) {
                    return try storage.unlinkat(fromDirectory, old, 0)
                } catch {
                    try? storage.unlinkat(toDirectory, new, 0)
                    throw error
                }
            }
            do throws(Errno) {
                try storage.renameat(fromDirectory, old, toDirectory, new, flags: 0)
            } catch .directoryNotEmpty, .notDirectory {
                throw .fileExists
            }
        }
    }

    /// Moves a directory over an empty directory, `victim`. The victim's record blocks a plain
    /// rename. So the two are exchanged in one step, and the empty one is removed from the old
    /// name.
    ///
    /// With a whiteout, the victim goes first: the whiteout takes the old name in the step that
    /// moves the directory.
    func replaceDirectory(
        _ fromDirectory: Int32, _ old: UnsafePointer<CChar>, _ toDirectory: Int32,
        _ new: UnsafePointer<CChar>, _ victim: Int32, whiteoutOf caller: Caller?
    ) throws(Errno) {
        try requireEmpty(victim)
        if let caller {
            return try replaceInTwoSteps(
                fromDirectory, old, toDirectory, new, victim, whiteoutOf: caller)
        }
        do throws(Errno) {
            try storage.renameat(fromDirectory, old, toDirectory, new, flags: renameExchange)
        } catch .invalidArgument {
            return try replaceInTwoSteps(fromDirectory, old, toDirectory, new, victim)
        }
        let hidden = store.staging.next()
        do throws(Errno) {
            try storage.renameat(fromDirectory, old, fromDirectory, hidden, flags: 0)
        } catch {
            // Back to where they were: a failed rename must change nothing.
            try storage.renameat(fromDirectory, old, toDirectory, new, flags: renameExchange)
            throw error
        }
        removeHidden(fromDirectory, hidden, victim)
    }

    /// Renames, and leaves a character device 0/0 under the old name. It belongs to the caller, as
    /// with mknod(2).
    func renameWithWhiteout(
        _ fromDirectory: Int32, _ old: UnsafePointer<CChar>, _ toDirectory: Int32,
        _ new: UnsafePointer<CChar>, _ caller: Caller
    ) throws(Errno) {
        try store.asCaller(caller) { () throws(Errno) in
            try storage.renameat(
                fromDirectory, old, toDirectory, new, flags: renameWhiteout)
        }
    }

    /// Removes the empty directory first where the two can't be exchanged. A power cut in between
    /// loses only the empty one.
    private func replaceInTwoSteps(
        _ fromDirectory: Int32, _ old: UnsafePointer<CChar>, _ toDirectory: Int32,
        _ new: UnsafePointer<CChar>, _ victim: Int32, whiteoutOf caller: Caller? = nil
    ) throws(Errno) {
        let hidden = store.staging.next()
        try storage.renameat(toDirectory, new, toDirectory, hidden, flags: 0)
        do throws(Errno) {
            if let caller {
                try renameWithWhiteout(fromDirectory, old, toDirectory, new, caller)
            } else {
                try storage.renameat(fromDirectory, old, toDirectory, new, flags: 0)
            }
        } catch {
            try storage.renameat(toDirectory, hidden, toDirectory, new, flags: 0)
            throw error
        }
        removeHidden(toDirectory, hidden, victim)
    }
}

/// `RENAME_NOREPLACE`, `RENAME_EXCHANGE` and `RENAME_WHITEOUT` of linux/fs.h, which Swift's
/// importer does not see.
let renameNoReplace: UInt32 = 1
let renameExchange: UInt32 = 2
let renameWhiteout: UInt32 = 4
