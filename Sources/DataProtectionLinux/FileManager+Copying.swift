internal import WardSystem

extension FileManager {
    /// Copies an item as Foundation does. On a ward volume each copied file has the class of its
    /// source from the first byte on. That is so on iOS, and with `cp -a` (row I13).
    public func copyItem(atPath source: String, toPath destination: String) throws {
        guard Paths.mayBeOnVolumes(source, destination) else {
            return try self.FoundationEssentials::copyItem(
                atPath: source, toPath: destination)
        }
        try ProtectedCopy(manager: self).copy(source, destination)
    }

    /// The same as `copyItem(atPath:toPath:)`.
    public func copyItem(at source: URL, to destination: URL) throws {
        guard source.isFileURL, destination.isFileURL else {
            return try self.FoundationEssentials::copyItem(at: source, to: destination)
        }
        try copyItem(atPath: source.path, toPath: destination.path)
    }

    /// Moves an item as Foundation does. A moved file keeps its class (row I5), also between two
    /// ward volumes.
    public func moveItem(atPath source: String, toPath destination: String) throws {
        let places = [source, destination].map(Paths.directory(of:))
        var devices: [dev_t] = []
        for place in places {
            if let status = try? Syscall.stat(place) { devices.append(status.st_dev) }
        }
        guard devices.count == 2, devices[0] != devices[1],
            Paths.mayBeOnVolumes(source, destination)
        else {
            return try self.FoundationEssentials::moveItem(
                atPath: source, toPath: destination)
        }
        if let delegate,
            !delegate.fileManager(self, shouldMoveItemAtPath: source, toPath: destination)
        {
            return
        }
        do {
            try moveByCopy(source, destination)
        } catch {
            guard let delegate,
                delegate.fileManager(
                    self, shouldProceedAfterError: error, movingItemAtPath: source,
                    toPath: destination)
            else { throw error }
        }
    }

    /// Copies, and removes the source only when the whole copy is durable. The delegate is not
    /// asked: it could leave out a part of the copy.
    private func moveByCopy(_ source: String, _ destination: String) throws {
        guard Paths.mode(destination) == nil else {
            throw FileFailure.plain(.fileExists, destination, .writing)
        }
        // A manager without a delegate.
        let manager = FileManager()
        do {
            try ProtectedCopy(manager: manager, isSynced: true).copy(source, destination)
        } catch {
            // An incomplete file has no name yet. A file at `destination` is another program's,
            // which was faster: keep it.
            if let mode = Paths.mode(destination), mode & S_IFMT == S_IFDIR,
                (error as? CocoaError)?.code != .fileWriteFileExists
            {
                try? manager.removeItem(atPath: destination)
            }
            throw error
        }
        try manager.removeItem(atPath: source)
    }

    /// The same as `moveItem(atPath:toPath:)`.
    public func moveItem(at source: URL, to destination: URL) throws {
        guard source.isFileURL, destination.isFileURL else {
            return try self.FoundationEssentials::moveItem(at: source, to: destination)
        }
        try moveItem(atPath: source.path, toPath: destination.path)
    }
}

/// A copy within a ward volume or between two, class by class. It asks the delegate of
/// `FileManager` as Foundation does.
struct ProtectedCopy {
    let manager: FileManager
    /// Whether files are durable before they get their names.
    var isSynced = false

    /// Copies an item and everything in it. Throws `CocoaError`: 516 where `destination` exists,
    /// which then stays unchanged.
    func copy(_ source: String, _ destination: String) throws {
        if let delegate = manager.delegate,
            !delegate.fileManager(
                manager, shouldCopyItemAtPath: source, toPath: destination)
        {
            return
        }
        do {
            try copyAllowed(source, destination)
        } catch {
            guard let delegate = manager.delegate,
                delegate.fileManager(
                    manager, shouldProceedAfterError: error, copyingItemAtPath: source,
                    toPath: destination)
            else { throw error }
        }
    }

    private func copyAllowed(_ source: String, _ destination: String) throws {
        var status = FileStatus()
        guard lstat(source, &status) == 0 else {
            throw FileFailure.error(Errno(rawValue: errno), source, .reading)
        }
        switch status.st_mode & S_IFMT {
        case S_IFREG: try copyFile(source, destination, status)
        case S_IFDIR: try copyDirectory(source, destination, status)
        case S_IFLNK:
            try manager.createSymbolicLink(
                atPath: destination,
                withDestinationPath: manager.destinationOfSymbolicLink(atPath: source))
        default:
            // Special files have no class.
            try manager.FoundationEssentials::copyItem(atPath: source, toPath: destination)
        }
    }

    private func copyFile(
        _ source: String, _ destination: String, _ status: FileStatus
    ) throws {
        let input = try opened(source)
        let protection: FileProtectionType?
        do throws(Errno) {
            protection = try VolumeAttributes.protection(
                ofItemAt: "/proc/self/fd/\(input.rawValue)")
        } catch {
            throw FileFailure.error(error, source, .reading)
        }
        do throws(Errno) {
            if Paths.mode(destination) != nil { throw .fileExists }
            let output = try UnnamedFile(
                in: Paths.directory(of: destination), protection: protection, mode: 0o600)
            try transfer(from: input.rawValue, to: output.descriptor.rawValue)
            try describe(output.descriptor.rawValue, as: status, attributesOf: input.rawValue)
            if isSynced { try Syscall.fsync(output.descriptor.rawValue) }
            try output.link(to: destination)
        } catch {
            throw FileFailure.error(error, destination, .writing, asking: protection)
        }
    }

    private func opened(_ source: String) throws -> OwnedDescriptor {
        do throws(Errno) {
            return try OwnedDescriptor(opening: source, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
        } catch {
            throw FileFailure.error(error, source, .reading)
        }
    }

    /// Copies the content and leaves out holes.
    private func transfer(from input: Int32, to output: Int32) throws(Errno) {
        let size = Int(try Syscall.fstat(input).st_size)
        try Syscall.ftruncate(output, size)
        let piece = 1 << 20
        let buffer = UnsafeMutableRawPointer.allocate(byteCount: piece, alignment: 4096)
        defer { buffer.deallocate() }
        var offset = 0
        while offset < size {
            let start = lseek(input, offset, 3 /* SEEK_DATA */)
            // ENXIO: the rest of the file is a hole.
            if start < 0 && errno == ENXIO { break }
            if start >= 0 { offset = start }
            let hole = lseek(input, offset, 4 /* SEEK_HOLE */)
            let end = hole > offset ? hole : size
            while offset < end {
                let count = try Syscall.pread(
                    input, buffer, min(piece, end - offset), at: offset)
                if count == 0 { return }
                try Syscall.pwrite(output, buffer, count, at: offset)
                offset += count
            }
        }
    }

    /// Copies extended attributes (not the class), mode and times.
    private func describe(
        _ output: Int32, as status: FileStatus, attributesOf input: Int32
    ) throws(Errno) {
        let from = "/proc/self/fd/\(input)"
        let to = "/proc/self/fd/\(output)"
        for name in VolumeAttributes.names(at: from)
        where name.hasPrefix("user.") && name != VolumeAttributes.protection {
            try VolumeAttributes.set(name, VolumeAttributes.value(name, at: from), at: to)
        }
        // The set-user-ID bit is meant for the source's owner. The copy belongs to the caller.
        let own = try Syscall.fstat(output)
        let isSameOwner = own.st_uid == status.st_uid && own.st_gid == status.st_gid
        try Syscall.fchmod(output, status.st_mode & (isSameOwner ? 0o7777 : 0o1777))
        try Syscall.futimens(
            output, access: status.st_atim, modification: status.st_mtim)
    }

    private func copyDirectory(
        _ source: String, _ destination: String, _ status: FileStatus
    ) throws {
        let protection: FileProtectionType?
        do throws(Errno) {
            protection = try VolumeAttributes.protection(ofItemAt: source)
        } catch {
            throw FileFailure.error(error, source, .reading)
        }
        // Listed before the copy exists, because the copy may lie in the source itself.
        let names = try manager.contentsOfDirectory(atPath: source)
        do throws(Errno) {
            try Syscall.mkdirat(AT_FDCWD, destination, 0o700)
        } catch {
            throw FileFailure.error(error, destination, .writing)
        }
        do throws(Errno) {
            if let protection {
                try VolumeAttributes.setProtection(protection, ofItemAt: destination)
            }
        } catch {
            rmdir(destination)
            throw FileFailure.error(error, destination, .writing)
        }
        for name in names {
            try copy(source + "/" + name, destination + "/" + name)
        }
        do throws(Errno) {
            let input = try OwnedDescriptor(opening: source, O_RDONLY | O_CLOEXEC | O_DIRECTORY)
            let output = try OwnedDescriptor(
                opening: destination, O_RDONLY | O_CLOEXEC | O_DIRECTORY)
            try describe(output.rawValue, as: status, attributesOf: input.rawValue)
        } catch {
            throw FileFailure.error(error, destination, .writing)
        }
    }
}
