import CWardLinux
import Glibc
import WardCrypto
import WardFormat
import WardSystem

// Making files, directories and special files.
extension Volume {
    public func create(
        _ parent: NodeID, _ name: UnsafeRawBufferPointer, mode: UInt32, umask: UInt32,
        flags: Int32, dropPrivilegeBits: Bool = false, caller: Caller, _ context: WorkerContext
    ) throws(Errno) -> (entry: Entry, file: OpenedFile) {
        do throws(Errno) {
            let (node, file, attributes) = try makeFile(
                node(parent), name, mode: mode, umask: umask, caller, context)
            let handle = FileHandle(node: node, file: file, flags: flags)
            node.hasCachedPages.store(true, ordering: .relaxed)
            return (
                Entry(node: node.id, generation: node.generation, attributes: attributes),
                OpenedFile(
                    handle: .handle(handle), keepCache: false, tellsAtClose: !gate.isOpenForAll)
            )
        } catch .fileExists where flags & O_EXCL == 0 {
            // Somebody else was first: an ordinary open.
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

    /// A new regular file with one handle and one look-up.
    private func makeFile(
        _ parent: Node, _ name: UnsafeRawBufferPointer, mode: UInt32, umask: UInt32,
        _ caller: Caller, _ context: WorkerContext
    ) throws(Errno) -> (Node, OpenFile, Attributes) {
        if isReadOnly { throw .readOnlyFileSystem }
        let state = try directoryState(of: parent)
        defer { context.endClassDecision() }
        let inherited = try classOfNewFiles(in: parent, state, context)
        let protectionClass =
            try sideFileClass(parent, state, name, else: inherited, caller, context) ?? inherited
        if !protectionClass.isForSynchronised {
            try mayDecide(protectionClass, parent, name, .create, caller, context)
        }
        try mayCreate(protectionClass, caller)
        let isLong = try encryptName(name, in: state.id, to: context.nameA)
        if isLong { longNames.lockRead() }
        defer { if isLong { longNames.unlock() } }
        let stored = context.nameA
        let directory = try directoryDescriptor(of: parent)
        let trueMode = try maskedMode(mode, umask, parent)
        let backing = BackingMode(trueMode: trueMode, isDirectory: false)
        if isLong { try makeLongLink(directory.rawValue, stored, name, state.id) }
        let file: OpenFile
        // What the new file's attributes are, where nothing was done to it since.
        var known: FileStatus?
        do throws(Errno) {
            context.beginClassDecision()
            if state.gives(protectionClass), !backing.needsRecord,
                !inheritsTooLittle(in: state, isDirectory: false)
            {
                creations.begin()
                defer { creations.end() }
                let descriptor = try asCaller(caller) { () throws(Errno) in
                    try storage.openat(
                        directory.rawValue, stored, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW,
                        mode: backing.bits)
                }
                do throws(Errno) {
                    let made = try adopt(descriptor, protectionClass, state)
                    file = made.file
                    known = made.status
                } catch {
                    takeBack(stored, parent, directory.rawValue)
                    throw error
                }
            } else {
                file = try makeStaged(
                    directory.rawValue, state, trueMode, protectionClass, caller)
                do throws(Errno) {
                    try storage.linkDescriptor(file.descriptor, directory.rawValue, stored)
                } catch {
                    discard(file)
                    throw error
                }
            }
        } catch {
            if isLong { removeLongLink(directory.rawValue, stored) }
            throw error
        }
        isDirty.store(true, ordering: .relaxed)
        let node = file.node
        node.addLink(parent, stored)
        noteNewName(of: node)
        if state.inheritedPermissions == InheritedPermissions.none { node.isFresh = true }
        do throws(Errno) {
            let status: FileStatus
            if let known { status = known } else { status = try storage.fstat(file.descriptor) }
            return (node, file, try attributes(of: node, status, context))
        } catch {
            // Nobody was told of it: it goes again, name and node.
            takeBack(stored, parent, directory.rawValue)
            if isLong { removeLongLink(directory.rawValue, stored) }
            discard(file)
            throw error
        }
    }

    /// For who walks through the files of the store and has opened one: whether a program was
    /// making it just then, and so has another node of it, and another open file, of which this one
    /// knows nothing. There is nothing to find or to mend in it. Nil where `shouldStop` says so, or
    /// the store takes too long to tell.
    func isNewborn(_ file: OpenFile, _ shouldStop: () -> Bool) -> Bool? {
        file.lock.lockRead()
        // One that has a header, or content, has its node since before that.
        let mayBeUnderWay = file.header == nil && file.sizeBytes == 0
        file.lock.unlock()
        // A creation that made the name which the walk has found began before this.
        let end = SystemClock.monotonic() + Volume.creationPatience
        while mayBeUnderWay, !file.node.isSuperseded, creations.areUnderWay {
            if shouldStop() || SystemClock.monotonic() > end { return nil }
            usleep(100)
        }
        return file.node.isSuperseded
    }

    private static let creationPatience = Duration.seconds(10)

    /// Removes the name of what was made, where its maker gets an error. The rest of a directory
    /// without a descriptor to be had is under a hidden name, and swept some day.
    func takeBack(
        _ stored: UnsafePointer<CChar>, _ parent: Node, _ directory: Int32,
        isDirectory: Bool = false
    ) {
        do throws(Errno) {
            guard isDirectory else { return try storage.unlinkat(directory, stored, 0) }
            // Out of the way first, as in `removeDirectory`.
            let hidden = stagingName()
            try storage.renameat(directory, stored, directory, hidden, flags: 0)
            sweep(directory, Array(hidden.utf8))
        } catch {
            noteUnknownName(in: parent)
        }
    }

    /// The open file of a descriptor that was just made: a fresh node with one look-up and one
    /// handle.
    private func adopt(
        _ descriptor: Int32, _ protectionClass: ProtectionClass, _ state: DirectoryState
    ) throws(Errno) -> (file: OpenFile, status: FileStatus) {
        let status: FileStatus
        do throws(Errno) {
            status = try storage.fstat(descriptor)
        } catch {
            storage.close(descriptor)
            throw error
        }
        let node = table.replace(inode: UInt64(status.st_ino), type: S_IFREG)
        defer { node.openLock.unlock() }
        let file = OpenFile(
            node: node, storage: storage, descriptor: descriptor, isWritable: true,
            protectionClass: protectionClass, header: nil, directoryID: state.id)
        file.presumeSetIDBits(backing: status.st_mode)
        file.isEndVerified = true
        file.isBeyondDoubt = true
        file.mendedSyncFailures = syncFailures.load(ordering: .acquiring)
        attach(file, to: node)
        return (file, status)
    }

    /// A file without a name that has everything before it gets one: its mode's record, and its
    /// header where its class is not the directory's (durably: the name must never be there with
    /// another class).
    private func makeStaged(
        _ directory: Int32, _ state: DirectoryState, _ trueMode: mode_t,
        _ protectionClass: ProtectionClass, _ caller: Caller
    ) throws(Errno) -> OpenFile {
        let backing = BackingMode(trueMode: trueMode, isDirectory: false)
        let descriptor = try asCaller(caller) { () throws(Errno) in
            try storage.openat(
                directory, ".", Int32(0o20200000) /* O_TMPFILE */ | O_RDWR, mode: backing.bits)
        }
        let file = try adopt(descriptor, protectionClass, state).file
        do throws(Errno) {
            if inheritsTooLittle(in: state, isDirectory: false) {
                try storage.chmod(descriptor, backing.bits)
            }
            if backing.needsRecord {
                var value = UInt16(trueMode & 0o7777).littleEndian
                try withUnsafeBytes(of: &value) { bytes throws(Errno) in
                    try storage.setxattr(
                        descriptor, BackingMode.attributeName, bytes, flags: 0)
                }
            }
            if !state.gives(protectionClass) {
                try makeDurableHeader(file, protectionClass)
            }
        } catch {
            discard(file)
            throw error
        }
        return file
    }

    /// Takes back a file that did not come to be.
    private func discard(_ file: OpenFile) {
        let node = file.node
        release(file, nil)
        table.release(node, lookups: 1)
    }

    /// `O_TMPFILE`: a file without a name, in the class of `parent` until one is set.
    public func createUnnamed(
        _ parent: NodeID, mode: UInt32, umask: UInt32, flags: Int32, caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) -> (entry: Entry, file: OpenedFile) {
        if isReadOnly { throw .readOnlyFileSystem }
        let parent = node(parent)
        let state = try directoryState(of: parent)
        defer { context.endClassDecision() }
        let inherited = try classOfNewFiles(in: parent, state, context)
        let directory = try directoryDescriptor(of: parent)
        let trueMode = try maskedMode(mode, umask, parent)
        let backing = BackingMode(trueMode: trueMode, isDirectory: false)
        let descriptor = try asCaller(caller) { () throws(Errno) in
            try storage.openat(
                directory.rawValue, ".", Int32(0o20200000) /* O_TMPFILE */ | O_RDWR,
                mode: backing.bits)
        }
        let file = try adopt(descriptor, inherited, state).file
        do throws(Errno) {
            if inheritsTooLittle(in: state, isDirectory: false) {
                try storage.chmod(descriptor, backing.bits)
            }
            if backing.needsRecord {
                try setMode(descriptor, trueMode, isDirectory: false, wasMarked: true)
            }
            let node = file.node
            node.hasCachedPages.store(true, ordering: .relaxed)
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
            try asCaller(caller) { () throws(Errno) in
                try storage.mknodat(
                    directory, stored, type | permissions, ward_makedev(major, minor))
            }
        }
    }

    public func makeDirectory(
        _ parent: NodeID, _ name: UnsafeRawBufferPointer, mode: UInt32, umask: UInt32,
        caller: Caller, _ context: WorkerContext
    ) throws(Errno) -> Entry {
        if isReadOnly { throw .readOnlyFileSystem }
        let parentNode = node(parent)
        let trueMode = try maskedMode(mode, umask, parentNode)
        let backing = BackingMode(trueMode: trueMode, isDirectory: true)
        let inherited = try protectionClass(of: parentNode, context)
        return try make(parent, name, context, isDirectory: true) {
            directory, stored, state throws(Errno) in
            // Built under a hidden name, complete with its record, and moved into place.
            let hidden = stagingName()
            try asCaller(caller) { () throws(Errno) in
                try storage.mkdirat(directory, hidden, backing.bits & ~S_ISUID)
            }
            do throws(Errno) {
                if inheritsTooLittle(in: state, isDirectory: true) {
                    let place = StoreDescriptor(
                        try storage.openPlace(directory, hidden), storage)
                    let made = try storage.fstat(place.rawValue).st_mode & S_ISGID
                    try storage.chmod(place.rawValue, backing.bits & ~S_ISUID | made)
                }
                let descriptor = try storage.openat(
                    directory, hidden, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, mode: 0)
                defer { storage.close(descriptor) }
                let record = DirectoryRecord(
                    directoryID: SystemRandom.bytes(16), protectionClass: inherited)
                try storage.symlinkat(
                    target: record.linkTarget(macKey: keys.records), descriptor,
                    DirectoryRecord.linkName)
                if backing.bits & S_ISUID != 0 {
                    let inherited = try storage.fstat(descriptor).st_mode & S_ISGID
                    try setMode(
                        descriptor, trueMode | inherited, isDirectory: true, wasMarked: true)
                }
                if !keepsOrder { try storage.fsync(descriptor) }
                try renameToFreeName(directory, hidden, directory, stored, isDirectory: true)
            } catch {
                sweep(directory, Array(hidden.utf8))
                throw error
            }
        }
    }

    /// The mode a new inode gets: what the directory's default ACL leaves of it, or, where there is
    /// none, the umask, acl(5).
    private func maskedMode(
        _ mode: UInt32, _ umask: UInt32, _ parent: Node
    ) throws(Errno) -> mode_t {
        let bits = mode_t(mode) & 0o7777
        if let most = try inheritedPermissions(in: parent).most { return bits & (0o7000 | most) }
        return bits & ~mode_t(umask)
    }

    private func inheritedPermissions(in parent: Node) throws(Errno) -> InheritedPermissions {
        let state = try directoryState(of: parent)
        if let known = state.inheritedPermissions { return known }
        let descriptor = try directoryDescriptor(of: parent)
        var permissions = InheritedPermissions.none
        do throws(Errno) {
            let acl = try storedValue(descriptor.rawValue, Volume.defaultACLName)
            if let most = Volume.mostPermissions(acl) {
                permissions = InheritedPermissions(most: most)
            }
        } catch .noData, .notSupported {
        }
        state.inheritedPermissions = permissions
        return permissions
    }

    /// Whether what is made in this directory may get less than the backing inode needs: its
    /// default ACL gives the owner less.
    private func inheritsTooLittle(
        in state: DirectoryState, isDirectory: Bool
    ) -> Bool {
        let needed = BackingMode.neededBits(isDirectory: isDirectory)
        return state.inheritedPermissions?.most.map { $0 & needed != needed } ?? false
    }
}
