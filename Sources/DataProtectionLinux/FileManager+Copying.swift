internal import WardSystem

extension FileManager {
    /// As Foundation's; on a ward volume each copied file has the class of its source from the
    /// first byte on, as on iOS (`cp -a` does the same, row I13).
    public func copyItem(atPath source: String, toPath destination: String) throws {
        guard Paths.mayBeOnVolumes(source, destination) else {
            return try self.FoundationEssentials::copyItem(
                atPath: source, toPath: destination)
        }
        try ProtectedCopy(manager: self).copy(source, destination)
    }

    /// As `copyItem(atPath:toPath:)`.
    public func copyItem(at source: URL, to destination: URL) throws {
        guard source.isFileURL, destination.isFileURL else {
            return try self.FoundationEssentials::copyItem(at: source, to: destination)
        }
        try copyItem(atPath: source.path, toPath: destination.path)
    }

    /// As Foundation's; a file that is moved keeps its class (row I5), also from one ward volume to
    /// another.
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

    /// The source goes when all of the copy is on the disk, and not before: nobody is asked to
    /// leave out a part of it.
    private func moveByCopy(_ source: String, _ destination: String) throws {
        guard Paths.mode(destination) == nil else {
            throw FileFailure.plain(.fileExists, destination, .writing)
        }
        // Of its own, without a delegate.
        let manager = FileManager()
        do {
            try ProtectedCopy(manager: manager, isSynced: true).copy(source, destination)
        } catch {
            // A file that is not whole has no name yet; one that is there is of somebody else, who
            // was quicker.
            if let mode = Paths.mode(destination), mode & S_IFMT == S_IFDIR,
                (error as? CocoaError)?.code != .fileWriteFileExists
            {
                try? manager.removeItem(atPath: destination)
            }
            throw error
        }
        try manager.removeItem(atPath: source)
    }

    /// As `moveItem(atPath:toPath:)`.
    public func moveItem(at source: URL, to destination: URL) throws {
        guard source.isFileURL, destination.isFileURL else {
            return try self.FoundationEssentials::moveItem(at: source, to: destination)
        }
        try moveItem(atPath: source.path, toPath: destination.path)
    }
}

/// A copy within or between ward volumes, class by class. `FileManager`'s delegate is asked as
/// Foundation asks it.
struct ProtectedCopy {
    let manager: FileManager
    /// Whether files are on the disk before they have their names.
    var isSynced = false

    /// Copies one item with everything in it. Throws `CocoaError`; what is there already is 516 and
    /// stays as it is.
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

    /// Content, holes left out.
    private func transfer(from input: Int32, to output: Int32) throws(Errno) {
        let size = Int(try Syscall.fstat(input).st_size)
        try Syscall.ftruncate(output, size)
        let piece = 1 << 20
        let buffer = UnsafeMutableRawPointer.allocate(byteCount: piece, alignment: 4096)
        defer { buffer.deallocate() }
        var offset = 0
        while offset < size {
            let start = lseek(input, offset, 3 /* SEEK_DATA */)
            // ENXIO: nothing but a hole is left.
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

    /// Extended attributes but the class, mode and times.
    private func describe(
        _ output: Int32, as status: FileStatus, attributesOf input: Int32
    ) throws(Errno) {
        let from = "/proc/self/fd/\(input)"
        let to = "/proc/self/fd/\(output)"
        for name in VolumeAttributes.names(at: from)
        where name.hasPrefix("user.") && name != VolumeAttributes.protection {
            try VolumeAttributes.set(name, VolumeAttributes.value(name, at: from), at: to)
        }
        // What is set-user-ID belongs to its owner; the copy is of whoever makes it.
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
        // Before the copy is there: it may lie in the directory itself.
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
