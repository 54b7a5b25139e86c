import Glibc
import WardFormat
import WardSystem
import WardVolume

// Carrying over files, links and other things that are no directories.
extension VolumeUpgrade {
    func carryOver(_ task: Task) {
        // Files and links with several names wait until all names are known.
        if task.nameCount > 1, task.type == S_IFREG || task.type == S_IFLNK {
            return tally.withLock { $0.several[task.inode, default: []].append(task) }
        }
        carryOver([task])
    }

    /// Carries over what has these names. The first one is in the directory that a header names.
    private func carryOver(_ names: [Task]) {
        let task = names[0]
        do throws(Errno) {
            noteDone(isNew: try isCarriedOver(names), names.count)
        } catch {
            judge(error, task)
        }
    }

    private func noteDone(isNew: Bool, _ names: Int) {
        noteDone(isNew: isNew)
        tally.withLock { $0.report.progress.done += names - 1 }
    }

    private func isCarriedOver(_ names: [Task]) throws(Errno) -> Bool {
        let task = names[0]
        switch task.type {
        case S_IFREG:
            return try contexts.withTyped { context throws(Errno) in
                try withNode(task) { node throws(Errno) in
                    let result = try volume.carryOver(
                        file: node, in: task.parent, nameCount: names.count, context)
                    if case .locked = result { tally.withLock { $0.report.locked += 1 } }
                    if case .done = result { return true }
                    return false
                }
            }
        case S_IFLNK:
            return try volume.carryOver(
                link: names.map { ($0.parent, $0.stored) }, nameCount: task.nameCount)
        default:
            let directory = try volume.backing.directoryDescriptor(of: task.parent)
            return try withExtendedLifetime(directory) { () throws(Errno) in
                try volume.carryOver(special: task.stored, in: directory.rawValue)
            }
        }
    }

    private func withNode<R>(_ task: Task, _ body: (Node) throws(Errno) -> R) throws(Errno) -> R {
        let node = try volume.retainNode(
            inode: task.inode, type: task.type, task.stored, in: task.parent, seen: nil)
        defer { volume.releaseNode(node) }
        return try body(node)
    }

    /// Notes a thing that can't be carried over. A file may have no sound header in either format.
    /// It does not keep the upgrade from its end: a check finds it in format 2 as well.
    private func judge(_ error: Errno, _ task: Task) {
        if error == .ioError, task.type == S_IFREG {
            let isSound: Bool?
            do throws(Errno) {
                let directory = try volume.backing.directoryDescriptor(of: task.parent)
                isSound = try withExtendedLifetime(directory) { () throws(Errno) in
                    try volume.hasVersion1Header(directory.rawValue, task.stored)
                }
            } catch {
                isSound = nil
            }
            if isSound == false { return noteDone(isNew: false) }
        }
        let reason =
            switch error {
            case .tooManyLinks: "it has names in too many directories"
            case .resourceBusy: "not all of its names are in the volume"
            case .ioError: "it is damaged, or can't be read"
            default: "\(error)"
            }
        noteLeft(path(task), reason)
    }

    // MARK: Several names

    /// Carries over files and links with several names, now that all names are known. The lists of
    /// directories are durable before a header needs them.
    func carryOverSeveralNames(_ onProgress: (UpgradeProgress) -> Void) {
        let groups = tally.withLock { tally in
            defer { tally.several = [:] }
            return Array(tally.several.values)
        }
        let sorted = map(groups.count, onProgress) { index in self.withPlaces(groups[index]) }
        if sorted.contains(where: \.hasList) {
            do throws(Errno) {
                try volume.durablePoint()
            } catch {
                return noteLeft("/", "the store can't be synced: \(error)")
            }
        }
        let ready = sorted.filter { !$0.names.isEmpty }
        _ = map(ready.count, onProgress) { index in
            if !self.shouldStop() { self.carryOver(ready[index].names) }
        }
        for name in ready.flatMap(\.names) where name.type == S_IFLNK {
            restoreTime(of: name.parent)
        }
    }

    private struct Group: Sendable {
        /// The first one is in the directory with the most names. Empty where the group is not
        /// ready.
        var names: [Task]
        var hasList = false
    }

    private func withPlaces(_ names: [Task]) -> Group {
        if names[0].type != S_IFREG { return Group(names: names) }
        var byDirectory: [[UInt8]: [Task]] = [:]
        do throws(Errno) {
            for name in names {
                let id = try volume.backing.directoryState(of: name.parent).id
                byDirectory[id, default: []].append(name)
            }
            let home = byDirectory.max { $0.value.count < $1.value.count }!
            let others = byDirectory.filter { $0.key != home.key }
            let list = others.flatMap { other in other.value.map { _ in other.key } }
            let hasList = try contexts.withTyped { context throws(Errno) in
                try withNode(home.value[0]) { node throws(Errno) in
                    try volume.listPlaces(of: node, list, context)
                }
            }
            return Group(names: home.value + others.flatMap(\.value), hasList: hasList)
        } catch {
            judge(error, names[0])
            return Group(names: [])
        }
    }
}
