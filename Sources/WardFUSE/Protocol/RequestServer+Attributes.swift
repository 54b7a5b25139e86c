import CWardLinux
import Glibc
import WardSystem
import WardVolume

/// Requests about attributes, extended attributes and the file system.
extension RequestServer {
    func getAttributes(_ call: inout Call<Channel>) throws(Errno) {
        let request = try call.body.take(fuse_getattr_in.self)
        let handle = request.getattr_flags & FUSE_GETATTR_FH != 0 ? request.fh : nil
        let attributes = try volume.attributes(
            of: call.node, handle: handle, caller: call.caller, context)
        send(fuse_attr_out(attributes, policy), call)
    }

    func setAttributes(_ call: inout Call<Channel>) throws(Errno) {
        let request = try call.body.take(fuse_setattr_in.self)
        let handle = request.valid & FATTR_FH != 0 ? request.fh : nil
        let change = AttributeChange(request)
        if volume.mustWriteBack(before: change, of: call.node) {
            return submit(.attributes(call.node, change, call.caller, policy), call)
        }
        let attributes = try volume.setAttributes(
            of: call.node, handle: handle, change, caller: call.caller, context)
        send(fuse_attr_out(attributes, policy), call)
    }

    func getExtendedAttribute(_ call: inout Call<Channel>) throws(Errno) {
        let request = try call.body.take(fuse_getxattr_in.self)
        let name = try call.body.takeName()
        let value =
            if let answer = try volume.mountAttribute(of: call.node, name, call.caller) {
                answer
            } else {
                try volume.extendedAttribute(of: call.node, name, context)
            }
        try send(value, capacity: request.size, call)
    }

    func listExtendedAttributes(_ call: inout Call<Channel>) throws(Errno) {
        let request = try call.body.take(fuse_getxattr_in.self)
        let names = try volume.extendedAttributeNames(of: call.node, context)
        try send(names, capacity: request.size, call)
    }

    func setExtendedAttribute(_ call: inout Call<Channel>) throws(Errno) {
        var request = fuse_setxattr_in()
        if hasExtendedSetxattr {
            request = try call.body.take(fuse_setxattr_in.self)
        } else {
            request.size = try call.body.take(UInt32.self)
            request.flags = try call.body.take(UInt32.self)
        }
        let name = try call.body.takeName()
        let value = try call.body.takeBytes(request.size)
        if Volume.isClassSyncMark(value),
            name.elementsEqual(Volume.unsyncedClassName.utf8)
                || name.elementsEqual(Volume.ownersUnsyncedClassName.utf8)
        {
            return submit(.classes(since: Array(value)), call)
        }
        try volume.setExtendedAttribute(
            of: call.node, name, value: value, flags: Int32(bitPattern: request.flags),
            dropSetGroupID: request.setxattr_flags & FUSE_SETXATTR_ACL_KILL_SGID != 0,
            caller: call.caller, context)
        call.succeed()
    }

    func removeExtendedAttribute(_ call: inout Call<Channel>) throws(Errno) {
        try volume.removeExtendedAttribute(
            of: call.node, try call.body.takeName(), caller: call.caller, context)
        call.succeed()
    }

    func fileSystemStatus(_ call: inout Call<Channel>) throws(Errno) {
        let status = try volume.fileSystemStatus()
        send(fuse_statfs_out(st: fuse_kstatfs(status)), call)
    }

    /// A capacity of 0 asks for the size only, getxattr(2).
    private func send(
        _ bytes: [UInt8], capacity: UInt32, _ call: Call<Channel>
    ) throws(Errno) {
        if capacity == 0 {
            send(fuse_getxattr_out(size: UInt32(truncatingIfNeeded: bytes.count), padding: 0), call)
        } else if bytes.count > Int(capacity) {
            throw Errno(rawValue: ERANGE)
        } else {
            bytes.withUnsafeBytes { send($0, call) }
        }
    }
}
