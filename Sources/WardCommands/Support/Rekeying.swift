import CWardLinux
import Glibc
import WardConsole
import WardFormat
import WardSystem

/// Gives a file a new key: copies the content to an unnamed file, which then takes the old one's
/// name.
///
/// At every moment the name refers to the old file or the complete new one. The copy keeps mode,
/// owner, times and attributes. A file with other hard links or with writers is refused, because
/// the copy would separate from it.
struct Rekeying {
    private let directory: Int32
    private let name: NodeName
    private let path: String

    /// - Parameters:
    ///   - directory: The directory of the file.
    ///   - name: The file's name there.
    ///   - path: The file's path for messages.
    init(directory: Int32, name: [UInt8], path: String) {
        self.directory = directory
        self.name = NodeName(bytes: name)
        self.path = path
    }

    /// Copies and replaces the file. `progress` gets the bytes done and the total.
    func run(
        protectionClass: ProtectionClass, progress: (Int, Int) -> Void
    ) throws(CommandFailure) {
        let changed: Bool
        let source = try openSource()
        try refuse(source.rawValue)
        do throws(Errno) {
            let before = try Syscall.fstat(source.rawValue)
            let copy = OwnedDescriptor(
                adopting: try Syscall.openat(
                    directory, ".", OpenFlag.temporary | O_RDWR, mode: 0o600))
            try ExtendedAttribute.set(
                ExtendedAttribute.wardClass, Array(protectionClass.letter.utf8),
                descriptor: copy.rawValue)
            let size = Int(before.st_size)
            try FileContent.copy(from: source.rawValue, to: copy.rawValue, sizeBytes: size) {
                progress($0, size)
            }
            try copyAttributes(source.rawValue, copy.rawValue, before)
            changed = !isUnchanged(before, try Syscall.fstat(source.rawValue))
            if !changed { try replace(with: copy.rawValue) }
        } catch {
            throw failure(error)
        }
        if changed { throw refusal("it was changed while it was copied", hint: "try again") }
    }

    // MARK: Steps

    private func openSource() throws(CommandFailure) -> OwnedDescriptor {
        do throws(Errno) {
            return OwnedDescriptor(
                adopting: try name.withCString { name throws(Errno) in
                    try Syscall.openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NOCTTY)
                })
        } catch {
            throw failure(error)
        }
    }

    private func refuse(_ source: Int32) throws(CommandFailure) {
        guard let status = try? Syscall.fstat(source) else { return }
        if status.st_nlink > 1 {
            throw refusal(
                "it has \(status.st_nlink) hard links, and the others would keep the old key",
                hint: "copy it, then remove every old name")
        }
        // A read lease is refused while a program has the file open for writing, fcntl(2). A
        // program that opens it for writing during the lease sends SIGIO here, which kills by
        // default.
        signal(SIGIO, SIG_IGN)
        if ward_fcntl_int(source, 1024 /* F_SETLEASE */, Int32(F_RDLCK)) == 0 {
            _ = ward_fcntl_int(source, 1024, Int32(F_UNLCK))
        } else if errno == EAGAIN {
            throw refusal(
                "a program has it open for writing", hint: "close it there, then try again")
        }
    }

    /// Copies the owner before the mode (chown(2) drops set-user-ID bits), the mode after
    /// attributes, the times last.
    private func copyAttributes(
        _ source: Int32, _ copy: Int32, _ status: FileStatus
    ) throws(Errno) {
        let now = try Syscall.fstat(copy)
        if now.st_uid != status.st_uid || now.st_gid != status.st_gid {
            try Syscall.fchown(copy, status.st_uid, status.st_gid)
        }
        for name in try ExtendedAttribute.names(descriptor: source)
        where !["user.ward.class", "user.ward.volume", "user.ward.socket"].contains(name) {
            try ExtendedAttribute.set(
                name, try ExtendedAttribute.value(of: name, descriptor: source), descriptor: copy)
        }
        // Only now: the old mode may deny writing, which attributes need.
        try Syscall.fchmod(copy, status.st_mode & 0o7777)
        try Syscall.futimens(copy, access: status.st_atim, modification: status.st_mtim)
    }

    /// Whether the file is unchanged; only the access time may differ.
    private func isUnchanged(_ before: FileStatus, _ after: FileStatus) -> Bool {
        before.st_size == after.st_size && before.st_nlink == after.st_nlink
            && before.st_mtim.tv_sec == after.st_mtim.tv_sec
            && before.st_mtim.tv_nsec == after.st_mtim.tv_nsec
    }

    private func replace(with copy: Int32) throws(Errno) {
        let temporary = ".ward-rekey-\(getpid())-\(copy)"
        try Syscall.linkat(
            AT_FDCWD, "/proc/self/fd/\(copy)", directory, temporary, flags: AT_SYMLINK_FOLLOW)
        do throws(Errno) {
            try Syscall.fsync(copy)
            try name.withCString { name throws(Errno) in
                try Syscall.renameat(directory, temporary, directory, name)
            }
        } catch {
            try? Syscall.unlinkat(directory, temporary)
            throw error
        }
        try Syscall.fsync(directory)
    }

    // MARK: Failures

    private func failure(_ error: Errno) -> CommandFailure {
        if error == .notPermitted {
            return CommandFailure(
                "cannot rekey", path, why: "a key that is needed is locked away",
                hint: "ward unlock", status: .locked)
        }
        return CommandFailure("cannot rekey", path, errno: error)
    }

    private func refusal(_ why: String, hint: String) -> CommandFailure {
        CommandFailure("cannot rekey", path, why: why, hint: hint, status: .temporary)
    }
}
