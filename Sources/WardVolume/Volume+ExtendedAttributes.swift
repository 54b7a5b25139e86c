import CWardLinux
import Glibc
import WardCrypto
import WardFormat
import WardSystem

/// Extended attributes. Those of users (`user.*`, `trusted.*`) are stored as `user.w.` (or
/// `trusted.w.`) ‖ base64url of the first 16 bytes of HMAC-SHA-256 of the name; the value is nonce
/// 12 ‖ ciphertext ‖ tag 16 of name length 2 ‖ name ‖ value, associated data: ID of the file or
/// directory ‖ stored name. `security.*` and POSIX ACLs pass through. `user.ward.class`,
/// `.class.unsynced`, `.synced`, `.volume` and `.socket` are answered here and stored nowhere, and
/// so are `system.ward.class` and `.class.unsynced`, which can only be set.
extension Volume {
    static let className = Array("user.ward.class".utf8)
    /// To be set as `user.ward.class`, for whoever changes many files: a stronger class is durable
    /// when the value that it had before the first change was set on any of them afterwards,
    /// without an error. Of a directory as well (decision 0065).
    public static let unsyncedClassName = "user.ward.class.unsynced"
    /// To be set as `user.ward.class`, by the owner of a file or directory, whatever its mode. The
    /// kernel lets nobody set an attribute of `user.*` who may not write, and leaves `system.*` to
    /// the file system (xattr(7)): so a file that its owner made read-only gets a class as it gets
    /// a mode, chmod(2).
    static let ownersClassName = "system.ward.class"
    /// The same, to be set as `unsyncedClassName`.
    public static let ownersUnsyncedClassName = "system.ward.class.unsynced"
    static let defaultACLName = "system.posix_acl_default"
    static let accessACLName = "system.posix_acl_access"
    static let capabilityName = "security.capability"
    /// ls(1) asks each file for it until it hears that the file system knows no labels, and the
    /// kernel keeps no answer: so a file without one says so. Where SELinux runs it answers itself.
    static let labelName = "security.selinux"

    private enum AttributeName {
        case protectionClass, unsyncedClass, synchronised, volume, socket
        /// Set by the owner alone.
        case ownersClass(isSynced: Bool)
        /// Stored as it is.
        case passedThrough(String)
        /// Encrypted, under this prefix. `isMark`: ward goes by it (`user.ward.backup-excluded`),
        /// so that setting and removing it takes the owner.
        case sealed(prefix: String, isMark: Bool = false)
        /// A prefix and nothing after it.
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
            if node.isFresh, text == Volume.accessACLName || text == Volume.capabilityName {
                throw .noData
            }
            do throws(Errno) {
                let value = try storedValue(of: node, text)
                return text == Volume.accessACLName ? try withTrueOwner(value, node) : value
            } catch .noData where text == Volume.labelName {
                throw .notSupported
            } catch .notSupported where text != Volume.labelName {
                // A store without ACLs. The kernel, which asks for one at each step of a path,
                // would refuse that with this error.
                throw .noData
            }
        case .sealed(let prefix, _):
            let stored = storedName(name, prefix)
            return try openedAttribute(of: node, stored, context) { $0.elementsEqual(name) }.value
        case .incomplete: throw .invalidArgument
        case .ownersClass, .unsupported: throw .notSupported
        }
    }

    /// Names, each followed by a zero byte.
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

    /// The attribute that is stored as `stored`. `ENODATA` where it is not there, `EIO` where it is
    /// damaged or is not called what it must be.
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
            // A file that lost its attributes and its content meanwhile, and got new ones, has
            // another ID.
            let ownerNow = try ownerID(of: node, context)
            let sealedNow = try storedValue(of: node, stored)
            if look < Volume.mostLooks, ownerNow != owner || sealedNow != sealed { continue }
            try judgeAttribute(of: node)
            break
        }
        throw .noData
    }

    /// An attribute that does not authenticate: `EIO`, or, while a doubt is left, taken for one
    /// that is not there. A power cut can keep an attribute and lose the header of its file, which
    /// then gets another ID.
    private func judgeAttribute(of node: Node) throws(Errno) {
        let finding = "an extended attribute does not authenticate"
        guard node.isRegular, hasDoubt.load(ordering: .acquiring) else {
            throw damaged(node, finding)
        }
        report(.healed(path: path(of: node), finding: finding))
    }

    /// Takes away what `judgeAttribute` excuses, before nothing excuses it any more. The file's
    /// lock is held.
    func mendAttributes(_ file: OpenFile) throws(Errno) {
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

    func storedNames(_ descriptor: Int32) throws(Errno) -> [String] {
        try storedNames(at: .descriptor(descriptor))
    }

    private func storedNames(of node: Node) throws(Errno) -> [String] {
        try asking(node) { place throws(Errno) in try storedNames(at: place) }
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
        try asking(node) { place throws(Errno) in try storedValue(at: place, name) }
    }

    func storedValue(_ descriptor: Int32, _ name: String) throws(Errno) -> [UInt8] {
        try storedValue(at: .descriptor(descriptor), name)
    }

    private func storedValue(at place: BackingPlace, _ name: String) throws(Errno) -> [UInt8] {
        try growing { buffer throws(Errno) in try place.getxattr(name, in: storage, buffer) }
    }

    /// Calls with a larger buffer until the answer fits.
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

    /// `flags`: `XATTR_CREATE`, `XATTR_REPLACE` or 0. `dropSetGroupID`:
    /// `FUSE_SETXATTR_ACL_KILL_SGID`.
    public func setExtendedAttribute(
        of id: NodeID, _ name: UnsafeRawBufferPointer, value: UnsafeRawBufferPointer,
        flags: Int32, dropSetGroupID: Bool, caller: Caller, _ context: WorkerContext
    ) throws(Errno) {
        if isReadOnly { throw .readOnlyFileSystem }
        try guardContainerRecord(name, caller)
        let node = node(id)
        defer { isDirty.store(true, ordering: .relaxed) }
        switch kind(of: name) {
        case .protectionClass:
            try setProtectionClass(
                of: node, to: protectionClass(spelledBy: value), caller, context)
        case .unsyncedClass:
            try setProtectionClass(
                of: node, to: protectionClass(spelledBy: value), isSynced: false, caller, context)
        case .ownersClass(let isSynced):
            // As the kernel says it for attributes. `EPERM` means a lock.
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
            // Before it is set: who asks meanwhile asks the store.
            node.isFresh = false
            try withPathDescriptor(of: node) { descriptor throws(Errno) in
                if text == Volume.accessACLName {
                    try setAccessACL(
                        node, descriptor, [UInt8](value), flags, dropSetGroupID: dropSetGroupID)
                } else {
                    try storage.setxattr(descriptor, text, value, flags: flags)
                }
            }
            if text == Volume.defaultACLName { node.directory?.inheritedPermissions = nil }
        case .sealed(let prefix, let isMark):
            guard name.count <= 255 else { throw .outOfRange }
            if isMark, try !isOwner(caller, of: node) { throw .notPermitted }
            try withOwnerID(of: node, context) { owner throws(Errno) in
                let stored = storedName(name, prefix)
                let sealed = sealAttribute(name, value, owner, stored)
                try withPathDescriptor(of: node) { descriptor throws(Errno) in
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
        // Some tools store the terminating zero along.
        let text = String(decoding: value, as: UTF8.self)
        guard
            let wanted = ProtectionClass(
                spelling: text.hasSuffix("\0") ? String(text.dropLast()) : text)
        else { throw .invalidArgument }
        return wanted
    }

    public func removeExtendedAttribute(
        of id: NodeID, _ name: UnsafeRawBufferPointer, caller: Caller, _ context: WorkerContext
    ) throws(Errno) {
        if isReadOnly { throw .readOnlyFileSystem }
        try guardContainerRecord(name, caller)
        let node = node(id)
        defer { isDirty.store(true, ordering: .relaxed) }
        switch kind(of: name) {
        case .protectionClass:
            // Every file has a class. Copying tools take away attributes that the source lacks
            // (rsync -X): that must neither fail nor weaken anything.
            return
        case .synchronised: try setMark(of: node, to: false, caller, context)
        case .unsyncedClass: throw .noData
        case .incomplete: throw .invalidArgument
        case .ownersClass, .volume, .socket, .unsupported: throw .notSupported
        case .passedThrough(let text):
            try withPathDescriptor(of: node) { descriptor throws(Errno) in
                try storage.removexattr(descriptor, text)
            }
            if text == Volume.defaultACLName { node.directory?.inheritedPermissions = nil }
        case .sealed(let prefix, let isMark):
            if isMark, try !isOwner(caller, of: node) { throw .notPermitted }
            let stored = storedName(name, prefix)
            try withPathDescriptor(of: node) { descriptor throws(Errno) in
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
    ) -> [UInt8] {
        var plain: [UInt8] = [UInt8(name.count & 0xFF), UInt8(name.count >> 8)]
        plain.append(contentsOf: name)
        plain.append(contentsOf: value)
        defer { plain.withUnsafeMutableBytes { explicit_bzero($0.baseAddress!, $0.count) } }
        return plain.withUnsafeBytes {
            keys.attributes.sealCombined($0, associatedData: owner + Array(stored.utf8))
        }
    }

    func openAttribute(
        _ sealed: [UInt8], _ owner: [UInt8], _ stored: String
    ) -> (name: [UInt8], value: [UInt8])? { keys.openAttribute(sealed, owner, stored) }

    /// The ID that attributes of symbolic links, FIFOs, sockets and devices are bound to, which
    /// have none of their own.
    private static let noOwnerID = [UInt8](repeating: 0, count: 16)

    /// The ID that a node's attributes are bound to; nil where it has none yet.
    private func ownerID(of node: Node, _ context: WorkerContext) throws(Errno) -> [UInt8]? {
        if node.isDirectory { return try directoryState(of: node).id }
        guard node.isRegular else { return Volume.noOwnerID }
        let file = try acquire(node, context).file
        defer { release(file, context) }
        file.lock.lockRead()
        defer { file.lock.unlock() }
        return file.header?.fileID
    }

    /// Runs `body` with that ID, which a file without a header gets now, and keeps until `body` has
    /// returned: nobody empties a file that is about to get its first attribute.
    private func withOwnerID(
        of node: Node, _ context: WorkerContext, _ body: ([UInt8]) throws(Errno) -> Void
    ) throws(Errno) {
        if node.isDirectory { return try body(try directoryState(of: node).id) }
        guard node.isRegular else { return try body(Volume.noOwnerID) }
        let file = try acquire(node, context).file
        defer { release(file, context) }
        file.lock.lockWrite()
        defer { file.lock.unlock() }
        if file.header == nil { try makeKeylessHeader(file, file.protectionClass) }
        guard let header = file.header else { throw .notSupported }
        try body(header.fileID)
    }

    // MARK: ACLs

    // The kernel's form: version 4 ‖ entries of tag 2 ‖ permissions 2 ‖ ID 4,
    // linux/posix_acl_xattr.h.
    private static let ownerTag: UInt16 = 0x01
    private static let groupTag: UInt16 = 0x04
    private static let maskTag: UInt16 = 0x10
    private static let othersTag: UInt16 = 0x20

    /// An ACL as stored shows the backing mode's owner bits; the true ones go to the caller.
    private func withTrueOwner(_ value: [UInt8], _ node: Node) throws(Errno) -> [UInt8] {
        let status = try status(of: node)
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
        // The backing file system has put group (or mask) and other bits into the mode; the owner's
        // are ours to keep.
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

    /// The permissions of the first entry with this tag; nil where there is none.
    private static func permissions(_ acl: [UInt8], of tag: UInt16) -> UInt16? {
        guard acl.count >= 4, (acl.count - 4) % 8 == 0 else { return nil }
        for at in stride(from: 4, to: acl.count, by: 8)
        where UInt16(acl[at]) | UInt16(acl[at + 1]) << 8 == tag {
            return UInt16(acl[at + 2]) | UInt16(acl[at + 3]) << 8
        }
        return nil
    }

    /// The permissions that an ACL leaves of the mode of a file that inherits it
    /// (`posix_acl_create_masq`, fs/posix_acl.c); nil where it has no entries.
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
    /// How an attribute is called on the backing file: `prefix` ‖ base64url of the first 16 bytes
    /// of its HMAC.
    func storedAttributeName(_ name: [UInt8], _ prefix: String) -> String {
        prefix + Base64URL.encode(Array(HMACSHA256.authenticate(name, key: attributeNames)[0..<16]))
    }

    /// Name and value of a stored attribute; nil where it does not authenticate. `owner`: the
    /// file's or directory's ID.
    func openAttribute(
        _ sealed: [UInt8], _ owner: [UInt8], _ stored: String
    ) -> (name: [UInt8], value: [UInt8])? {
        guard
            let plain = try? attributes.openSecret(
                sealed, associatedData: owner + Array(stored.utf8))
        else { return nil }
        return plain.withUnsafeBytes { bytes in
            guard bytes.count >= 2 else { return nil }
            let count = Int(bytes[0]) | Int(bytes[1]) << 8
            guard bytes.count >= 2 + count else { return nil }
            return ([UInt8](bytes[2..<(2 + count)]), [UInt8](bytes[(2 + count)...]))
        }
    }
}
