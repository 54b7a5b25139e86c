import CWardLinux
import Glibc
import WardCrypto
import WardFormat
import WardSystem

/// Extended attributes.
///
/// Attributes of users (`user.*`, `trusted.*`) are stored encrypted. The stored name is `user.w.`
/// (or `trusted.w.`) ‖ base64url of the first 16 bytes of HMAC-SHA-256 of the name. The value is
/// sealed (`MetadataCipher`): name length 2 ‖ name ‖ value. The associated data is the ID of the
/// file or directory ‖ stored name.
///
/// `security.*` and POSIX ACLs pass through. The volume answers `user.ward.class`,
/// `.class.unsynced`, `.synced`, `.volume` and `.socket` itself and stores none of them. The same
/// holds for `system.ward.class` and `.class.unsynced`, which can only be set.
extension Volume {
    static let className = Array("user.ward.class".utf8)
    /// Sets a class like `user.ward.class`, without a sync. It is for a program that changes many
    /// files or directories (decision 0065).
    ///
    /// The program reads the attribute before its first change and sets the value that it read on
    /// any of them after the last. If that gives no error, all stronger classes are durable.
    public static let unsyncedClassName = "user.ward.class.unsynced"
    /// Sets a class like `user.ward.class`, for the owner of a file or directory, at any mode.
    ///
    /// The kernel lets a program set `user.*` only where it may write, and leaves `system.*` to the
    /// file system (xattr(7)). So the owner can set the class of a file that is read-only, like its
    /// mode with chmod(2).
    static let ownersClassName = "system.ward.class"
    /// The owner's form of `unsyncedClassName`.
    public static let ownersUnsyncedClassName = "system.ward.class.unsynced"
    static let defaultACLName = "system.posix_acl_default"
    static let accessACLName = "system.posix_acl_access"
    static let capabilityName = "security.capability"
    /// ls(1) reads it from each file until the file system answers that it has no labels, and the
    /// kernel caches no answer. So a file without a label answers `ENOTSUP`. With SELinux the
    /// kernel answers itself.
    static let labelName = "security.selinux"

    private enum AttributeName {
        case protectionClass, unsyncedClass, synchronised, volume, socket
        /// Only the owner sets it.
        case ownersClass(isSynced: Bool)
        /// Stored as it is.
        case passedThrough(String)
        /// Encrypted, under this prefix. `isMark`: ward itself acts on it
        /// (`user.ward.backup-excluded`), so only the owner sets or removes it.
        case sealed(prefix: String, isMark: Bool = false)
        /// Only a prefix, without a name.
        case incomplete
        case unsupported
    }

    private func kind(of name: UnsafeRawBufferPointer) -> AttributeName {
        let text = String(decoding: name, as: UTF8.self)
        switch text {
        case "user.ward.class": return .protectionClass
        case Volume.unsyncedClassName: return .unsyncedClass
        case Volume.ownersClassName: return .ownersClass(isSynced: true)
        case Volume.ownersUnsyncedClassName: return .ownersClass(isSynced: false)
        case "user.ward.synced": return .synchronised
        case "user.ward.volume": return .volume
        case "user.ward.socket": return .socket
        case Volume.accessACLName, Volume.defaultACLName: return .passedThrough(text)
        case "user.", "trusted.": return .incomplete
        default: break
        }
        if text.hasPrefix("user.ward.") { return .sealed(prefix: "user.w.", isMark: true) }
        if text.hasPrefix("security.") { return .passedThrough(text) }
        if text.hasPrefix("user.") { return .sealed(prefix: "user.w.") }
        if text.hasPrefix("trusted.") { return .sealed(prefix: "trusted.w.") }
        return .unsupported
    }

    // MARK: Reading

    /// Returns the value of an attribute. Throws `ENODATA` if there is none, `EIO` if it is
    /// damaged, `ENOTSUP` for an unknown namespace.
    public func extendedAttribute(
        of id: NodeID, _ name: UnsafeRawBufferPointer, _ context: WorkerContext
    ) throws(Errno) -> [UInt8] {
        let node = node(id)
        switch kind(of: name) {
        case .protectionClass:
            guard node.isRegular || node.isDirectory else { throw .noData }
            return Array(try protectionClass(of: node, context).fileProtectionName.utf8)
        case .unsyncedClass: return classSyncMark
        case .synchronised: return Array(try synchronisation(of: node).rawValue.utf8)
        case .volume: return Array(parameters.uuidString.utf8)
        case .socket:
            let path = socketPath
            if path.isEmpty { throw .noData }
            return Array(path.utf8)
        case .passedThrough(let text):
            if node.notes.isFresh.value,
                text == Volume.accessACLName || text == Volume.capabilityName
            {
                throw .noData
            }
            do throws(Errno) {
                let value = try storedValue(of: node, text)
                return text == Volume.accessACLName ? try withTrueOwner(value, node) : value
            } catch .noData where text == Volume.labelName {
                throw .notSupported
            } catch .notSupported where text != Volume.labelName {
                // The backing store has no ACLs. The kernel asks for an ACL at each step of a path
                // and would refuse the path with `ENOTSUP`.
                throw .noData
            }
        case .sealed(let prefix, _):
            let stored = storedName(name, prefix)
            return try openedAttribute(of: node, stored, context) { $0.elementsEqual(name) }.value
        case .incomplete: throw .invalidArgument
        case .ownersClass, .unsupported: throw .notSupported
        }
    }

    /// Returns the names, each followed by a zero byte.
    public func extendedAttributeNames(
        of id: NodeID, _ context: WorkerContext
    ) throws(Errno) -> [UInt8] {
        let node = node(id)
        var result: [UInt8] = []
        if node.isRegular || node.isDirectory { result += Volume.className + [0] }
        for name in try storedNames(of: node) {
            if name.hasPrefix("user.w.") || name.hasPrefix("trusted.w.") {
                do throws(Errno) {
                    result += try openedAttribute(of: node, name, context) { _ in true }.name + [0]
                } catch .noData {
                    // Excused, or removed meanwhile.
                }
            } else if name.hasPrefix("security.") || name.hasPrefix("system.posix_acl_") {
                result += Array(name.utf8) + [0]
            }
        }
        return result
    }

    /// Returns the attribute that is stored under the name `stored`. Throws `ENODATA` if there is
    /// none, `EIO` if it is damaged or its name is wrong.
    private func openedAttribute(
        of node: Node, _ stored: String, _ context: WorkerContext,
        isName: ([UInt8]) -> Bool
    ) throws(Errno) -> (name: [UInt8], value: [UInt8]) {
        for look in 1...Volume.mostLooks {
            guard let owner = try ownerID(of: node, context) else { throw .noData }
            let sealed = try storedValue(of: node, stored)
            if let opened = openAttribute(sealed, owner, stored), isName(opened.name) {
                return opened
            }
            // The file may have lost its attributes and its content meanwhile and got new ones,
            // with another ID.
            let ownerNow = try ownerID(of: node, context)
            let sealedNow = try storedValue(of: node, stored)
            if look < Volume.mostLooks, ownerNow != owner || sealedNow != sealed { continue }
            try judgeAttribute(of: node)
            break
        }
        throw .noData
    }

    /// Judges an attribute that does not authenticate. Throws `EIO`; in doubt it reports the
    /// finding, and the attribute counts as missing. A power cut can keep an attribute and lose the
    /// file's header. The file then gets another ID.
    private func judgeAttribute(of node: Node) throws(Errno) {
        let finding = "an extended attribute does not authenticate"
        guard node.isRegular, durability.doubt.isOpen else {
            throw damaged(node, finding)
        }
        report(.healed(path: path(of: node), finding: finding))
    }

    /// Removes the attributes that `judgeAttribute` excuses, before the doubt ends.
    func mendAttributes(_ access: borrowing FileWriteAccess) throws(Errno) {
        let file = access.file
        guard file.isWritable else { return }
        for name in try storedNames(file.descriptor)
        where name.hasPrefix("user.w.") || name.hasPrefix("trusted.w.") {
            if let owner = file.header?.fileID,
                openAttribute(try storedValue(file.descriptor, name), owner, name) != nil
            {
                continue
            }
            try storage.removexattr(file.descriptor, name)
        }
    }

    /// Returns the stored names of all attributes of an open backing file.
    package func storedNames(_ descriptor: Int32) throws(Errno) -> [String] {
        try storedNames(at: .descriptor(descriptor))
    }

    private func storedNames(of node: Node) throws(Errno) -> [String] {
        try backing.asking(node) { place throws(Errno) in try storedNames(at: place) }
    }

    private func storedNames(at place: BackingPlace) throws(Errno) -> [String] {
        let list: [UInt8]
        do throws(Errno) {
            list = try growing { buffer throws(Errno) in try place.listxattr(in: storage, buffer) }
        } catch .notSupported {
            return []
        }
        return list.split(separator: 0).map { String(decoding: $0, as: UTF8.self) }
    }

    private func storedValue(of node: Node, _ name: String) throws(Errno) -> [UInt8] {
        try backing.asking(node) { place throws(Errno) in try storedValue(at: place, name) }
    }

    /// Returns the stored value of an attribute. Throws `ENODATA` where there is none.
    package func storedValue(_ descriptor: Int32, _ name: String) throws(Errno) -> [UInt8] {
        try storedValue(at: .descriptor(descriptor), name)
    }

    private func storedValue(at place: BackingPlace, _ name: String) throws(Errno) -> [UInt8] {
        try growing { buffer throws(Errno) in try place.getxattr(name, in: storage, buffer) }
    }

    /// Calls `body` with larger and larger buffers until the answer fits.
    private func growing(
        _ body: (UnsafeMutableRawBufferPointer) throws(Errno) -> Int
    ) throws(Errno) -> [UInt8] {
        var capacity = 512
        while true {
            var buffer = [UInt8](repeating: 0, count: capacity)
            do throws(Errno) {
                let count = try buffer.withUnsafeMutableBufferPointer { out throws(Errno) in
                    try body(UnsafeMutableRawBufferPointer(out))
                }
                buffer.removeLast(capacity - count)
                return buffer
            } catch .outOfRange where capacity < 1 << 17 {
                capacity *= 4
            }
        }
    }

    // MARK: Writing

    /// Sets an attribute. `flags`: `XATTR_CREATE`, `XATTR_REPLACE` or 0. `dropSetGroupID`:
    /// `FUSE_SETXATTR_ACL_KILL_SGID`.
    public func setExtendedAttribute(
        of id: NodeID, _ name: UnsafeRawBufferPointer, value: UnsafeRawBufferPointer,
        flags: Int32, dropSetGroupID: Bool, caller: Caller, _ context: WorkerContext
    ) throws(Errno) {
        if isReadOnly { throw .readOnlyFileSystem }
        try guardContainerRecord(name, caller)
        let node = node(id)
        defer { durability.dirt.noteChange() }
        switch kind(of: name) {
        case .protectionClass:
            try setProtectionClass(
                of: node, to: protectionClass(spelledBy: value), caller, context)
        case .unsyncedClass:
            try setProtectionClass(
                of: node, to: protectionClass(spelledBy: value), isSynced: false, caller, context)
        case .ownersClass(let isSynced):
            // `EACCES`, as the kernel answers for attributes. `EPERM` would mean a lock.
            guard try isOwner(caller, of: node) else { throw .permissionDenied }
            try setProtectionClass(
                of: node, to: protectionClass(spelledBy: value), isSynced: isSynced, caller,
                context)
        case .synchronised:
            guard value.elementsEqual(Synchronisation.marked.rawValue.utf8) else {
                throw .invalidArgument
            }
            try setMark(of: node, to: true, caller, context)
        case .volume, .socket: throw .notSupported
        case .passedThrough(let text):
            // Before the attribute is set: a request in between then asks the backing store.
            node.notes.isFresh.value = false
            try backing.withPathDescriptor(of: node) { descriptor throws(Errno) in
                if text == Volume.accessACLName {
                    try setAccessACL(
                        node, descriptor, [UInt8](value), flags, dropSetGroupID: dropSetGroupID)
                } else {
                    try storage.setxattr(descriptor, text, value, flags: flags)
                }
            }
            if text == Volume.defaultACLName { node.directory?.inheritedPermissions.value = nil }
        case .sealed(let prefix, let isMark):
            guard name.count <= 255 else { throw .outOfRange }
            if isMark, try !isOwner(caller, of: node) { throw .notPermitted }
            try withOwnerID(of: node, context) { owner throws(Errno) in
                let stored = storedName(name, prefix)
                let sealed = try sealAttribute(name, value, owner, stored)
                try backing.withPathDescriptor(of: node) { descriptor throws(Errno) in
                    try sealed.withUnsafeBytesTyped { bytes throws(Errno) in
                        try storage.setxattr(descriptor, stored, bytes, flags: flags)
                    }
                }
            }
        case .incomplete: throw .invalidArgument
        case .unsupported: throw .notSupported
        }
    }

    private func protectionClass(
        spelledBy value: UnsafeRawBufferPointer
    ) throws(Errno) -> ProtectionClass {
        // Some tools store the terminating zero, too.
        let text = String(decoding: value, as: UTF8.self)
        guard
            let wanted = ProtectionClass(
                spelling: text.hasSuffix("\0") ? String(text.dropLast()) : text)
        else { throw .invalidArgument }
        return wanted
    }

    /// Removes an attribute. Throws `ENODATA` if there is none.
    public func removeExtendedAttribute(
        of id: NodeID, _ name: UnsafeRawBufferPointer, caller: Caller, _ context: WorkerContext
    ) throws(Errno) {
        if isReadOnly { throw .readOnlyFileSystem }
        try guardContainerRecord(name, caller)
        let node = node(id)
        defer { durability.dirt.noteChange() }
        switch kind(of: name) {
        case .protectionClass:
            // Every file has a class. Copying tools remove attributes that the source lacks (rsync
            // -X): that must neither fail nor weaken the class.
            return
        case .synchronised: try setMark(of: node, to: false, caller, context)
        case .unsyncedClass: throw .noData
        case .incomplete: throw .invalidArgument
        case .ownersClass, .volume, .socket, .unsupported: throw .notSupported
        case .passedThrough(let text):
            try backing.withPathDescriptor(of: node) { descriptor throws(Errno) in
                try storage.removexattr(descriptor, text)
            }
            if text == Volume.defaultACLName { node.directory?.inheritedPermissions.value = nil }
        case .sealed(let prefix, let isMark):
            if isMark, try !isOwner(caller, of: node) { throw .notPermitted }
            let stored = storedName(name, prefix)
            try backing.withPathDescriptor(of: node) { descriptor throws(Errno) in
                try storage.removexattr(descriptor, stored)
            }
        }
    }

    // MARK: Sealing

    private func storedName(_ name: UnsafeRawBufferPointer, _ prefix: String) -> String {
        keys.storedAttributeName([UInt8](name), prefix)
    }

    private func sealAttribute(
        _ name: UnsafeRawBufferPointer, _ value: UnsafeRawBufferPointer, _ owner: [UInt8],
        _ stored: String
    ) throws(Errno) -> [UInt8] {
        var plain: [UInt8] = [UInt8(name.count & 0xFF), UInt8(name.count >> 8)]
        plain.append(contentsOf: name)
        plain.append(contentsOf: value)
        defer { plain.withUnsafeMutableBytes { explicit_bzero($0.baseAddress!, $0.count) } }
        return try plain.withUnsafeBytesTyped { bytes throws(Errno) in
            try keys.attributes.seal(bytes, associatedData: owner + Array(stored.utf8))
        }
    }

    func openAttribute(
        _ sealed: [UInt8], _ owner: [UInt8], _ stored: String
    ) -> (name: [UInt8], value: [UInt8])? { keys.openAttribute(sealed, owner, stored) }

    /// The owner ID for attributes of symbolic links, FIFOs, sockets and devices, which have no ID
    /// of their own.
    static let noOwnerID = [UInt8](repeating: 0, count: 16)

    /// The ID that a node's attributes are bound to; nil if it has none yet.
    private func ownerID(of node: Node, _ context: WorkerContext) throws(Errno) -> [UInt8]? {
        if node.isDirectory { return try backing.directoryState(of: node).id }
        guard node.isRegular else { return Volume.noOwnerID }
        let file = try acquire(node, context).file
        defer { release(file, context) }
        return file.withReadLock { file.header?.fileID }
    }

    /// Runs `body` with the node's owner ID. A file without a header gets one now. The file's lock
    /// is held until `body` returns, so that no other request empties the file meanwhile.
    private func withOwnerID(
        of node: Node, _ context: WorkerContext, _ body: ([UInt8]) throws(Errno) -> Void
    ) throws(Errno) {
        if node.isDirectory { return try body(try backing.directoryState(of: node).id) }
        guard node.isRegular else { return try body(Volume.noOwnerID) }
        let file = try acquire(node, context).file
        defer { release(file, context) }
        try file.withWriteAccess { access throws(Errno) in
            if file.header == nil { try makeKeylessHeader(access, file.protectionClass) }
            guard let header = file.header else { throw .notSupported }
            try body(header.fileID)
        }
    }

    // MARK: ACLs

    // The kernel's form: version 4 ‖ entries of tag 2 ‖ permissions 2 ‖ ID 4,
    // linux/posix_acl_xattr.h.
    private static let ownerTag: UInt16 = 0x01
    private static let groupTag: UInt16 = 0x04
    private static let maskTag: UInt16 = 0x10
    private static let othersTag: UInt16 = 0x20

    /// Returns a stored ACL with the true owner bits. The stored one has those of the backing mode.
    private func withTrueOwner(_ value: [UInt8], _ node: Node) throws(Errno) -> [UInt8] {
        let status = try backing.status(of: node)
        guard BackingMode.isMarked(status.st_mode) else { return value }
        let mode = try trueMode(of: node, status)
        return Volume.replacingOwner(value, UInt16(mode >> 6 & 7))
    }

    private func setAccessACL(
        _ node: Node, _ descriptor: Int32, _ value: [UInt8], _ flags: Int32, dropSetGroupID: Bool
    ) throws(Errno) {
        guard let owner = Volume.ownerPermissions(value) else { throw .invalidArgument }
        let status = try storage.fstat(descriptor)
        var mode = try trueMode(of: node, status) & 0o7777
        let needed: UInt16 = node.isDirectory ? 7 : 6
        let stored = Volume.replacingOwner(value, owner | needed)
        try stored.withUnsafeBytesTyped { bytes throws(Errno) in
            try storage.setxattr(descriptor, Volume.accessACLName, bytes, flags: flags)
        }
        // The backing file system has put the bits of group (or mask) and others into the mode. The
        // owner's bits stay as set here.
        let after = try storage.fstat(descriptor).st_mode
        mode = mode & 0o7000 | mode_t(owner) << 6 | after & 0o77
        if dropSetGroupID { mode &= ~S_ISGID }
        try setMode(
            descriptor, mode, isDirectory: node.isDirectory,
            wasMarked: BackingMode.isMarked(after))
    }

    private static func ownerPermissions(_ acl: [UInt8]) -> UInt16? {
        permissions(acl, of: ownerTag)
    }

    /// The permissions of the first entry with this tag; nil if there is none.
    private static func permissions(_ acl: [UInt8], of tag: UInt16) -> UInt16? {
        guard acl.count >= 4, (acl.count - 4) % 8 == 0 else { return nil }
        for at in stride(from: 4, to: acl.count, by: 8)
        where UInt16(acl[at]) | UInt16(acl[at + 1]) << 8 == tag {
            return UInt16(acl[at + 2]) | UInt16(acl[at + 3]) << 8
        }
        return nil
    }

    /// The permissions that an ACL leaves of the mode of a file that inherits it
    /// (`posix_acl_create_masq`, fs/posix_acl.c); nil if it has no entries.
    static func mostPermissions(_ acl: [UInt8]) -> mode_t? {
        guard let owner = permissions(acl, of: ownerTag),
            let group = permissions(acl, of: maskTag) ?? permissions(acl, of: groupTag),
            let others = permissions(acl, of: othersTag)
        else { return nil }
        return mode_t(owner & 7) << 6 | mode_t(group & 7) << 3 | mode_t(others & 7)
    }

    private static func replacingOwner(_ acl: [UInt8], _ permissions: UInt16) -> [UInt8] {
        var acl = acl
        guard acl.count >= 4, (acl.count - 4) % 8 == 0 else { return acl }
        for at in stride(from: 4, to: acl.count, by: 8)
        where UInt16(acl[at]) | UInt16(acl[at + 1]) << 8 == ownerTag {
            acl[at + 2] = UInt8(permissions & 0xFF)
        }
        return acl
    }
}

extension VolumeKeys {
    /// Returns the name of an attribute on the backing file: `prefix` ‖ base64url of the first 16
    /// bytes of its HMAC.
    package func storedAttributeName(_ name: [UInt8], _ prefix: String) -> String {
        prefix + Base64URL.encode(Array(HMACSHA256.authenticate(name, key: attributeNames)[0..<16]))
    }

    /// Returns name and value of a stored attribute; nil if it does not authenticate. `owner`: the
    /// ID of the file or directory.
    package func openAttribute(
        _ sealed: [UInt8], _ owner: [UInt8], _ stored: String
    ) -> (name: [UInt8], value: [UInt8])? {
        guard let plain = try? openAttributeBytes(sealed, owner, stored) else { return nil }
        return plain.withUnsafeBytes { bytes in
            guard bytes.count >= 2 else { return nil }
            let count = Int(bytes[0]) | Int(bytes[1]) << 8
            guard bytes.count >= 2 + count else { return nil }
            return ([UInt8](bytes[2..<(2 + count)]), [UInt8](bytes[(2 + count)...]))
        }
    }
}
