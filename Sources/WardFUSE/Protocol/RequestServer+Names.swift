import CWardLinux
import Glibc
import WardSystem
import WardVolume

/// Requests about names: looking up, making, moving, removing, forgetting.
extension RequestServer {
    func lookup(_ call: inout Call<Channel>) throws(Errno) {
        let name = try call.body.takeName()
        let entry: Entry
        do throws(Errno) {
            entry = try volume.lookup(call.node, name, context)
        } catch {
            guard error == .noSuchFileOrDirectory, policy.absenceSeconds > 0 else { throw error }
            send(fuse_entry_out.absence(policy), call)
            return
        }
        send(entry, call)
    }

    func forget(_ call: inout Call<Channel>) {
        guard let request = try? call.body.take(fuse_forget_in.self) else { return }
        volume.forget(call.node, lookups: request.nlookup)
    }

    func forgetBatch(_ call: inout Call<Channel>) {
        guard let batch = try? call.body.take(fuse_batch_forget_in.self) else { return }
        var left = batch.count
        while left > 0, let one = try? call.body.take(fuse_forget_one.self) {
            if one.nodeid != ProbeFile.node { volume.forget(one.nodeid, lookups: one.nlookup) }
            left = left &- 1
        }
    }

    func makeDirectory(_ call: inout Call<Channel>) throws(Errno) {
        let request = try call.body.take(fuse_mkdir_in.self)
        let name = try call.body.takeName()
        let entry = try volume.makeDirectory(
            call.node, name, mode: request.mode, umask: request.umask, caller: call.caller, context)
        send(entry, call)
    }

    func makeNode(_ call: inout Call<Channel>) throws(Errno) {
        let request = try call.body.take(fuse_mknod_in.self)
        let name = try call.body.takeName()
        let entry = try volume.makeNode(
            call.node, name, mode: request.mode, device: request.rdev, umask: request.umask,
            caller: call.caller, context)
        send(entry, call)
    }

    func makeSymbolicLink(_ call: inout Call<Channel>) throws(Errno) {
        let name = try call.body.takeName()
        let target = try call.body.takeName()
        let entry = try volume.makeSymbolicLink(
            call.node, name, target: target, caller: call.caller, context)
        send(entry, call)
    }

    func readLink(_ call: inout Call<Channel>) throws(Errno) {
        let target = try volume.readLink(call.node, context)
        target.withUnsafeBytes { send($0, call) }
    }

    func link(_ call: inout Call<Channel>) throws(Errno) {
        let request = try call.body.take(fuse_link_in.self)
        let name = try call.body.takeName()
        guard request.oldnodeid != ProbeFile.node else { throw .notPermitted }
        let entry = try volume.link(
            request.oldnodeid, call.node, name, caller: call.caller, context)
        send(entry, call)
    }

    func unlink(_ call: inout Call<Channel>) throws(Errno) {
        try volume.unlink(call.node, try call.body.takeName(), caller: call.caller, context)
        call.succeed()
    }

    func removeDirectory(_ call: inout Call<Channel>) throws(Errno) {
        try volume.removeDirectory(call.node, try call.body.takeName(), context)
        call.succeed()
    }

    func rename(_ call: inout Call<Channel>, withFlags: Bool) throws(Errno) {
        let newParent: NodeID
        var flags: UInt32 = 0
        if withFlags {
            let request = try call.body.take(fuse_rename2_in.self)
            newParent = request.newdir
            flags = request.flags
        } else {
            newParent = try call.body.take(fuse_rename_in.self).newdir
        }
        let oldName = try call.body.takeName()
        let newName = try call.body.takeName()
        try volume.rename(
            call.node, oldName, newParent, newName, flags: flags, caller: call.caller, context)
        call.succeed()
    }

    /// Replies with an entry. Undoes the look-up where the kernel did not take the reply.
    private func send(_ entry: Entry, _ call: Call<Channel>) {
        if !send(fuse_entry_out(entry, policy), call) { volume.forget(entry.node, lookups: 1) }
    }
}
