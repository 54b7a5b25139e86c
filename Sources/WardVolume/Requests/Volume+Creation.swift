import CWardLinux
import Glibc
import WardCrypto
import WardFormat
import WardSystem

// Making files, directories and special files.
extension Volume {
    /// Creates a regular file and opens it. Opens an existing file instead, unless `flags` has
    /// `O_EXCL`. Throws `EPERM` where the class does not permit a new file, `EROFS` on a read-only
    /// mount.
    public func create(
        _ parent: NodeID, _ name: UnsafeRawBufferPointer, mode: UInt32, umask: UInt32,
        flags: Int32, dropPrivilegeBits: Bool = false, caller: Caller, _ context: WorkerContext
    ) throws(Errno) -> (entry: Entry, file: OpenedFile) {
        do throws(Errno) {
            let (node, file, attributes) = try makeFile(
                node(parent), name, mode: mode, umask: umask, caller, context)
            let handle = FileHandle(node: node, file: file, flags: flags)
            node.cachedPages.exist.store(true, ordering: .relaxed)
            return (
                Entry(node: node.id, generation: node.generation, attributes: attributes),
                OpenedFile(
                    handle: .handle(handle), keepCache: false,
                    tellsAtClose: !gate.classes.isOpenForAll)
            )
        } catch .fileExists where flags & O_EXCL == 0 {
            // Another request made the name first. This is an ordinary open now.
            let entry = try lookup(parent, name, context)
            do throws(Errno) {
                let opened = try open(
                    entry.node, flags: flags, dropPrivilegeBits: dropPrivilegeBits, caller: caller,
                    context)
                return (entry, opened)
            } catch {
                forget(entry.node, lookups: 1)
                throw error
            }
        }
    }

    /// Makes a new regular file with one handle and one look-up.
    private func makeFile(
        _ parent: Node, _ name: UnsafeRawBufferPointer, mode: UInt32, umask: UInt32,
        _ caller: Caller, _ context: WorkerContext
    ) throws(Errno) -> (Node, OpenFile, Attributes) {
        if isReadOnly { throw .readOnlyFileSystem }
        let judgement = seals.ofNew
        let state = try backing.directoryState(of: parent)
        defer { context.endClassDecision() }
        let protectionClass = try classOfNewFile(parent, state, name, caller, context)
        let origin =
            judgement == .right
            ? Vouch.nothing : try vouch(for: protectionClass, name, in: parent, state, context)
        let given = NewClass(protectionClass, judgement, origin)
        return try backing.withName(name, in: parent, state, to: context.nameA) {
            place throws(Errno) in
            let trueMode = try maskedMode(mode, umask, parent)
            return try makeFile(place, trueMode, given, caller, context)
        }
    }

    /// The class of a new file, and its standing.
    private struct NewClass {
        let protectionClass: ProtectionClass
        let judgement: ClassSeals.Judgement
        /// The reason why the class counts, without the seal key.
        let origin: Vouch

        init(
            _ protectionClass: ProtectionClass, _ judgement: ClassSeals.Judgement, _ origin: Vouch
        ) {
            self.protectionClass = protectionClass
            self.judgement = judgement
            self.origin = origin
        }
    }

    private func makeFile(
        _ place: StoredName, _ trueMode: mode_t, _ given: NewClass,
        _ caller: Caller, _ context: WorkerContext
    ) throws(Errno) -> (Node, OpenFile, Attributes) {
        try place.makeLongLink(names)
        let made: (file: OpenFile, status: FileStatus?)
        do throws(Errno) {
            // Also for classes C and D: `writeRecord` waits for it. Does nothing if it was begun.
            context.beginClassDecision()
            made = try makeBackingFile(place, trueMode, given, caller)
        } catch {
            place.removeLongLink(names)
            throw error
        }
        return try announce(made.file, made.status, place, context)
    }

    /// Makes the backing file under its name. Returns its status if nothing was done to it since.
    private func makeBackingFile(
        _ place: StoredName, _ trueMode: mode_t, _ given: NewClass,
        _ caller: Caller
    ) throws(Errno) -> (file: OpenFile, status: FileStatus?) {
        let storedMode = BackingMode(trueMode: trueMode, isDirectory: false)
        guard place.state.gives(given.protectionClass), !storedMode.needsRecord,
            !inheritsTooLittle(in: place.state, isDirectory: false)
        else {
            let file = try makeStaged(
                place.descriptor, place.state, trueMode, given, caller)
            do throws(Errno) {
                try storage.linkDescriptor(file.descriptor, place.descriptor, place.stored)
            } catch {
                discard(file)
                throw error
            }
            return (file, nil)
        }
        names.creations.begin()
        defer { names.creations.end() }
        let descriptor = try store.asCaller(caller) { () throws(Errno) in
            try storage.openat(
                place.descriptor, place.stored, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW,
                mode: storedMode.bits)
        }
        do throws(Errno) {
            let made = try adopt(descriptor, given, place.state)
            return (made.file, made.status)
        } catch {
            takeBack(place.stored, place.parent, place.descriptor)
            throw error
        }
    }

    /// Gives the node of a new file its name, and returns the attributes. Removes the file again if
    /// it throws: the kernel does not know it yet.
    private func announce(
        _ file: OpenFile, _ known: FileStatus?, _ place: StoredName, _ context: WorkerContext
    ) throws(Errno) -> (Node, OpenFile, Attributes) {
        durability.dirt.noteChange()
        let node = file.node
        node.addLink(place.parent, place.stored)
        backing.noteChange(in: place.parent)
        noteNewName(of: node)
        if place.state.inheritedPermissions.value == InheritedPermissions.none {
            node.notes.isFresh.value = true
        }
        do throws(Errno) {
            let status: FileStatus
            if let known { status = known } else { status = try storage.fstat(file.descriptor) }
            return (node, file, try attributes(of: node, status, context))
        } catch {
            takeBack(place.stored, place.parent, place.descriptor)
            place.removeLongLink(names)
            discard(file)
            throw error
        }
    }

    /// Whether a program was just making this file when a walk over the backing store opened it.
    ///
    /// The program then has another node and another open file of it, which this one knows nothing
    /// of. The walk finds and mends nothing in such a file. Returns nil if `shouldStop` says so, or
    /// after `creationPatience`.
    func isNewborn(_ file: OpenFile, _ shouldStop: () -> Bool) -> Bool? {
        // A file with a header or content got its node earlier.
        let mayBeUnderWay = file.withReadLock { file.header == nil && file.sizeBytes == 0 }
        // If a creation made the name that the walk found, it began before this loop.
        let end = SystemClock.monotonic() + Volume.creationPatience
        while mayBeUnderWay, !file.node.isSuperseded, names.creations.areUnderWay {
            if shouldStop() || SystemClock.monotonic() > end { return nil }
            usleep(100)
        }
        return file.node.isSuperseded
    }

    private static let creationPatience = Duration.seconds(10)

    /// Removes the name of a file or directory whose creation failed. A directory may leave remains
    /// under a hidden name, which are swept later.
    func takeBack(
        _ stored: UnsafePointer<CChar>, _ parent: Node, _ directory: Int32,
        isDirectory: Bool = false
    ) {
        do throws(Errno) {
            guard isDirectory else { return try storage.unlinkat(directory, stored, 0) }
            // Out of the way first, as in `removeDirectory`.
            let hidden = store.staging.next()
            try storage.renameat(directory, stored, directory, hidden, flags: 0)
            // A power cut must not leave the name without the record. A failed mkdir(2) may leave a
            // whole directory, not a damaged one.
            if !store.traits.keepsOrder { try storage.fsync(directory) }
            sweep(directory, Array(hidden.utf8))
        } catch {
            noteUnknownName(in: parent)
        }
    }

    /// Makes the open file of a descriptor that was just created, with a fresh node, one look-up
    /// and one handle. Closes the descriptor if it throws.
    private func adopt(
        _ descriptor: Int32, _ given: NewClass, _ state: DirectoryState
    ) throws(Errno) -> (file: OpenFile, status: FileStatus) {
        let status: FileStatus
        do throws(Errno) {
            status = try storage.fstat(descriptor)
        } catch {
            storage.close(descriptor)
            throw error
        }
        let file = nodes.table.replace(inode: UInt64(status.st_ino), type: S_IFREG) { node in
            let file = OpenFile(
                node: node, backing: BackingFile(storage, descriptor, isWritable: true),
                protectionClass: given.protectionClass,
                FileBeginning(
                    headers: FileHeaderState(directoryID: state.id), extent: .made,
                    isBeyondDoubt: true, seal: given.judgement, origin: given.origin))
            file.notes.presumeSetIDBits(backing: status.st_mode)
            file.syncs.mendedFailures.value = durability.syncFailures
            attach(file, to: node)
            return file
        }
        return (file, status)
    }

    /// Makes a file that is complete except for its name. It has the record of its mode, and its
    /// header if its class is not the directory's. The header is durable first, so that a power cut
    /// never leaves the name with another class.
    private func makeStaged(
        _ directory: Int32, _ state: DirectoryState, _ trueMode: mode_t,
        _ given: NewClass, _ caller: Caller
    ) throws(Errno) -> OpenFile {
        let storedMode = BackingMode(trueMode: trueMode, isDirectory: false)
        let descriptor = try store.asCaller(caller) { () throws(Errno) in
            try storage.openat(
                directory, ".", Int32(0o20200000) /* O_TMPFILE */ | O_RDWR, mode: storedMode.bits)
        }
        let file = try adopt(descriptor, given, state).file
        do throws(Errno) {
            if inheritsTooLittle(in: state, isDirectory: false) {
                try storage.chmod(descriptor, storedMode.bits)
            }
            if storedMode.needsRecord {
                var value = UInt16(trueMode & 0o7777).littleEndian
                try withUnsafeBytes(of: &value) { bytes throws(Errno) in
                    try storage.setxattr(
                        descriptor, BackingMode.attributeName, bytes, flags: 0)
                }
            }
            if !state.gives(given.protectionClass) {
                try file.withWriteAccess { access throws(Errno) in
                    try makeDurableHeader(access, given.protectionClass)
                }
            }
        } catch {
            discard(file)
            throw error
        }
        return file
    }

    /// Drops a file that was not created in the end.
    private func discard(_ file: OpenFile) {
        let node = file.node
        release(file, nil)
        nodes.table.release(node, lookups: 1)
    }

    /// Makes a file without a name (`O_TMPFILE`), in the class of `parent` until a program sets
    /// one.
    public func createUnnamed(
        _ parent: NodeID, mode: UInt32, umask: UInt32, flags: Int32, caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) -> (entry: Entry, file: OpenedFile) {
        if isReadOnly { throw .readOnlyFileSystem }
        let parent = node(parent)
        let judgement = seals.ofNew
        let state = try backing.directoryState(of: parent)
        defer { context.endClassDecision() }
        let inherited = try classOfNewFiles(in: parent, state, context)
        let directory = try backing.directoryDescriptor(of: parent)
        let trueMode = try maskedMode(mode, umask, parent)
        let storedMode = BackingMode(trueMode: trueMode, isDirectory: false)
        let descriptor = try store.asCaller(caller) { () throws(Errno) in
            try storage.openat(
                directory.rawValue, ".", Int32(0o20200000) /* O_TMPFILE */ | O_RDWR,
                mode: storedMode.bits)
        }
        let origin =
            judgement == .right
            ? Vouch.nothing : try backing.vouch(for: inherited, in: parent, state)
        let given = NewClass(inherited, judgement, origin)
        let file = try adopt(descriptor, given, state).file
        do throws(Errno) {
            if inheritsTooLittle(in: state, isDirectory: false) {
                try storage.chmod(descriptor, storedMode.bits)
            }
            if storedMode.needsRecord {
                try setMode(descriptor, trueMode, isDirectory: false, wasMarked: true)
            }
            let node = file.node
            node.cachedPages.exist.store(true, ordering: .relaxed)
            let attributes = try attributes(of: node, try storage.fstat(descriptor), context)
            let handle = FileHandle(node: node, file: file, flags: flags)
            return (
                Entry(node: node.id, generation: node.generation, attributes: attributes),
                OpenedFile(handle: .handle(handle), keepCache: false)
            )
        } catch {
            discard(file)
            throw error
        }
    }

    /// Makes a regular file, FIFO, socket or device, mknod(2).
    public func makeNode(
        _ parent: NodeID, _ name: UnsafeRawBufferPointer, mode: UInt32, device: UInt32,
        umask: UInt32, caller: Caller, _ context: WorkerContext
    ) throws(Errno) -> Entry {
        if isReadOnly { throw .readOnlyFileSystem }
        let type = mode_t(mode) & S_IFMT
        if type == S_IFREG || type == 0 {
            let (node, file, attributes) = try makeFile(
                node(parent), name, mode: mode, umask: umask, caller, context)
            release(file, context)
            return Entry(node: node.id, generation: node.generation, attributes: attributes)
        }
        let permissions = try maskedMode(mode, umask, node(parent))
        // The kernel's encoding of device numbers, `new_encode_dev` in include/linux/kdev_t.h.
        let major = (device & 0xFFF00) >> 8
        let minor = (device & 0xFF) | ((device >> 12) & 0xFFF00)
        return try make(parent, name, context) { directory, stored, _ throws(Errno) in
            try store.asCaller(caller) { () throws(Errno) in
                try storage.mknodat(
                    directory, stored, type | permissions, ward_makedev(major, minor))
            }
        }
    }

    /// Makes a directory in the class of its parent, mkdir(2).
    public func makeDirectory(
        _ parent: NodeID, _ name: UnsafeRawBufferPointer, mode: UInt32, umask: UInt32,
        caller: Caller, _ context: WorkerContext
    ) throws(Errno) -> Entry {
        if isReadOnly { throw .readOnlyFileSystem }
        let parentNode = node(parent)
        let trueMode = try maskedMode(mode, umask, parentNode)
        let storedMode = BackingMode(trueMode: trueMode, isDirectory: true)
        let judgement = seals.ofNew
        let inherited = try protectionClass(of: parentNode, context)
        return try make(parent, name, context, isDirectory: true) {
            directory, stored, state throws(Errno) in
            // The directory is built under a hidden name, complete with its record, and moved into
            // place.
            let hidden = store.staging.next()
            try store.asCaller(caller) { () throws(Errno) in
                try storage.mkdirat(directory, hidden, storedMode.bits & ~S_ISUID)
            }
            do throws(Errno) {
                if inheritsTooLittle(in: state, isDirectory: true) {
                    let place = StoreDescriptor(
                        try storage.openPlace(directory, hidden), storage)
                    let made = try storage.fstat(place.rawValue).st_mode & S_ISGID
                    try storage.chmod(place.rawValue, storedMode.bits & ~S_ISUID | made)
                }
                let descriptor = try storage.openat(
                    directory, hidden, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, mode: 0)
                defer { storage.close(descriptor) }
                var record = DirectoryRecord(
                    directoryID: SystemRandom.bytes(16), protectionClass: inherited)
                if judgement == .right { record = seals.sealed(record, parentID: state.id) }
                if seals.areUsed, !record.hasSeal {
                    let inode = UInt64(try storage.fstat(descriptor).st_ino)
                    let vouch: Vouch =
                        judgement == .right
                        ? .mount : try backing.vouch(for: inherited, in: parentNode, state)
                    seals.notes.note(record, inode: inode, in: state.id, vouch)
                    backing.noteChange(in: parentNode)
                }
                try storage.symlinkat(
                    target: record.linkTarget(
                        macKey: keys.records, parentID: keys.parentID(state.id)),
                    descriptor, DirectoryRecord.linkName)
                if storedMode.bits & S_ISUID != 0 {
                    let inherited = try storage.fstat(descriptor).st_mode & S_ISGID
                    try setMode(
                        descriptor, trueMode | inherited, isDirectory: true, wasMarked: true)
                }
                if !store.traits.keepsOrder { try storage.fsync(descriptor) }
                try renameToFreeName(directory, hidden, directory, stored, isDirectory: true)
            } catch {
                sweep(directory, Array(hidden.utf8))
                throw error
            }
        }
    }

    /// Returns the mode for a new inode: what the directory's default ACL leaves of it or, without
    /// such an ACL, the umask; acl(5).
    private func maskedMode(
        _ mode: UInt32, _ umask: UInt32, _ parent: Node
    ) throws(Errno) -> mode_t {
        let bits = mode_t(mode) & 0o7777
        if let most = try inheritedPermissions(in: parent).most { return bits & (0o7000 | most) }
        return bits & ~mode_t(umask)
    }

    private func inheritedPermissions(in parent: Node) throws(Errno) -> InheritedPermissions {
        let state = try backing.directoryState(of: parent)
        if let known = state.inheritedPermissions.value { return known }
        let descriptor = try backing.directoryDescriptor(of: parent)
        var permissions = InheritedPermissions.none
        do throws(Errno) {
            let acl = try storedValue(descriptor.rawValue, Volume.defaultACLName)
            if let most = Volume.mostPermissions(acl) {
                permissions = InheritedPermissions(most: most)
            }
        } catch .noData, .notSupported {
        }
        state.inheritedPermissions.value = permissions
        return permissions
    }

    /// Whether a file or directory made here may lack bits that the backing inode needs: the
    /// default ACL gives the owner less.
    private func inheritsTooLittle(
        in state: DirectoryState, isDirectory: Bool
    ) -> Bool {
        let needed = BackingMode.neededBits(isDirectory: isDirectory)
        return state.inheritedPermissions.value?.most.map { $0 & needed != needed } ?? false
    }
}
