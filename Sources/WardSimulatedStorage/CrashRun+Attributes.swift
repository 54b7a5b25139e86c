import Glibc
import WardFormat
import WardSystem
import WardVolume

// Operations on attributes, modes, classes and the volume as a whole; syncs.
extension CrashRun {
    func setAttribute() throws {
        guard let identity = try pickFileOrDirectory() else { return }
        let name = random.pick(["user.a", "user.b"])
        let node = try node(identity)
        let old = model.nodes[identity]!.attributes[name] ?? [nil]
        if old.last! != nil, random.chance(1, in: 3) {
            label = "removexattr \(model.path(of: identity)) \(name)"
            model.nodes[identity]!.attributes[name] = old + [nil]
            try volume.removeAttribute(node, name)
        } else {
            label = "setxattr \(model.path(of: identity)) \(name)"
            let value = bytes(random.below(60))
            model.nodes[identity]!.attributes[name] = old + [value]
            try volume.setAttribute(node, name, value)
        }
    }

    func setMode() throws {
        guard let identity = try pickFileOrDirectory() else { return }
        let isDirectory = model.nodes[identity]!.kind == .directory
        let mode = random.pick(
            isDirectory ? [UInt32(0o755), 0o700, 0o500] : [0o644, 0o600, 0o444, 0o200, 0, 0o755])
        label = "chmod \(model.path(of: identity)) \(String(mode, radix: 8))"
        let node = try node(identity)
        model.nodes[identity]!.modes.append(mode)
        try volume.setMode(node, mode)
    }

    func setClass() throws {
        guard !isLocked, let identity = try pickFileOrDirectory() else { return }
        let old = model.nodes[identity]!.classes.last!
        let wanted = random.pick(ProtectionClass.allCases)
        let isSynced = random.chance(2, in: 3)
        label = "class of \(model.path(of: identity)) from \(old) to \(wanted)"
        if !isSynced { label += ", not synced" }
        let node = try node(identity)
        model.nodes[identity]!.classes.append(wanted)
        try volume.setClass(node, wanted, isSynced: isSynced)
        let isDurable =
            model.nodes[identity]!.kind == .directory
            ? isSynced || settings.disk.order == .posix
            : isSynced && wanted.isStronger(than: old)
        if isDurable {
            model.syncClass(identity)
        }
    }

    func syncFile() throws {
        guard let file = try pickFile() else { return }
        let dataOnly = random.chance(1, in: 3)
        label = "\(dataOnly ? "fdatasync" : "fsync") \(model.path(of: file))"
        let handle = try handle(file)
        try volume.fsync(handle, dataOnly: dataOnly)
        noteLost()
        model.sync(file, dataOnly: dataOnly)
    }

    func syncDirectory() throws {
        let directory = random.pick(model.directories)
        label = "fsync \(model.path(of: directory))/"
        let node = try node(directory)
        try volume.fsyncDirectory(node)
        model.syncDirectory(directory)
    }

    func durablePoint() throws {
        label = "durable point"
        try volume.volume.durablePoint()
        volume.volume.finishBackgroundWork()
        noteLost()
        model.syncAll(isOnDisk: true)
    }

    func syncClasses() throws {
        label = "sync of classes"
        do throws(Errno) {
            try volume.syncClasses()
        } catch {
            guard error == .ioError, settings.injectsErrors, !volume.disk.hasFailed else {
                throw error
            }
            // Another sync failed since the first of these changes and may have dropped one of
            // them.
            return noteLost()
        }
        noteLost()
        model.syncClasses()
    }

    func toggleLock() throws {
        // No errors here: pages that a lock can't store are lost and reported (threat-model.md
        // §15).
        volume.disk.fail(nil)
        if isLocked {
            label = "unlock"
            try volume.unlock()
            isLocked = false
        } else {
            label = "lock"
            volume.lock()
            isLocked = true
            // Open files stay open but can't be used. The run closes them.
            for (identity, handle) in kernel.handles where !isOpenClass(identity) {
                volume.release(handle)
            }
            kernel.handles.removeAll { !isOpenClass($0.identity) }
        }
    }

    func closeAndReopen() throws {
        label = "unmount and mount"
        let disk = volume.disk
        // A mount after a failed sync reads the state on the disk (`CrashSyncTests.mountedAgain`).
        noteLost()
        if model.nodes.values.contains(where: \.hasLostPages) { return }
        disk.fail(nil)
        for (_, handle) in kernel.handles { volume.release(handle) }
        kernel.handles = []
        forgetAll()
        isLocked = false
        try volume.volume.close()
        model.syncAll()
        volume = try CrashVolume(keys, on: disk)
    }
}
