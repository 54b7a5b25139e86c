import CWardLinux
import Glibc
import WardSystem

// Renames that plain rename(2) does not know. Some NFS and FUSE stores answer EINVAL to both flags.
extension Volume {
    /// To a name that nothing has: `EEXIST` otherwise.
    ///
    /// Without the flag a directory of ours never takes the place of anything: what is there holds
    /// a record, or is no directory. Anything else gets its new name, and loses the old one
    /// afterwards.
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

    /// A directory over an empty directory, `victim`. The target's record is in the way of a plain
    /// rename: the two change places in one step, and the empty one goes from the old name.
    /// `leavesWhiteout`: one takes the old name in the step that moves the directory, so the empty
    /// one goes first.
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
        let hidden = stagingName()
        do throws(Errno) {
            try storage.renameat(fromDirectory, old, fromDirectory, hidden, flags: 0)
        } catch {
            // Back to where they were: what has failed has not happened.
            try storage.renameat(fromDirectory, old, toDirectory, new, flags: renameExchange)
            throw error
        }
        removeHidden(fromDirectory, hidden, victim)
    }

    /// Leaves a device file of number 0 in the old place, which is the caller's, as mknod(2) makes
    /// it.
    func renameWithWhiteout(
        _ fromDirectory: Int32, _ old: UnsafePointer<CChar>, _ toDirectory: Int32,
        _ new: UnsafePointer<CChar>, _ caller: Caller
    ) throws(Errno) {
        try asCaller(caller) { () throws(Errno) in
            try storage.renameat(
                fromDirectory, old, toDirectory, new, flags: renameWhiteout)
        }
    }

    /// Where they can't change places the empty one goes first: a power cut in between takes it,
    /// and nothing else.
    private func replaceInTwoSteps(
        _ fromDirectory: Int32, _ old: UnsafePointer<CChar>, _ toDirectory: Int32,
        _ new: UnsafePointer<CChar>, _ victim: Int32, whiteoutOf caller: Caller? = nil
    ) throws(Errno) {
        let hidden = stagingName()
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

/// `RENAME_NOREPLACE`, `RENAME_EXCHANGE` and `RENAME_WHITEOUT` of linux/fs.h, which the importer
/// does not see.
let renameNoReplace: UInt32 = 1
let renameExchange: UInt32 = 2
let renameWhiteout: UInt32 = 4
