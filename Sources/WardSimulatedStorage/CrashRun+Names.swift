import Glibc
import WardFormat
import WardSystem
import WardVolume

// Operations on names: each changes the model first, then sends the request.
extension CrashRun {
    func renameSomething() throws {
        let keys = model.names.keys.sorted { ($0.directory, $0.name) < ($1.directory, $1.name) }
        guard !keys.isEmpty else { return }
        let old = random.pick(keys)
        let moved = model.names[old]!
        let isDirectory = model.nodes[moved]!.kind == .directory
        let to = random.pick(model.directories)
        let new = CrashModel.Key(
            directory: to, name: name(in: to, isDirectory ? "d" : random.pick(["f", "l"])))
        guard old != new, !model.isInside(to, moved) else { return }
        let replaced = model.names[new]
        if replaced == moved { return }
        if let replaced {
            let other = model.nodes[replaced]!
            guard (other.kind == .directory) == isDirectory else { return }
        }
        let exchanges =
            replaced.map { !model.isInside(old.directory, $0) } ?? false
            && random.chance(1, in: 4)
        label = "\(exchanges ? "exchange" : "rename") \(model.path(old)) to \(model.path(new))"
        let from = try node(old.directory)
        let target = try node(to)
        if exchanges {
            model.step([(old, replaced), (new, moved)])
            try volume.rename(old.name, in: from, to: new.name, in: target, flags: 2)
            return
        }
        if let replaced, isDirectory {
            guard model.children(of: replaced).isEmpty, !model.isInside(old.directory, replaced)
            else { return }
            // Two steps on the disk: an empty directory may be left under the old name
            // (docs/format.md §9).
            model.step([(old, replaced), (new, moved)])
            model.step([(old, nil)])
        } else {
            model.step([(old, nil), (new, moved)])
        }
        try volume.rename(old.name, in: from, to: new.name, in: target)
        if let replaced { dropIfGone(replaced) }
    }

    func linkFile() throws {
        guard let file = try pickFile(), let key = vacantName("f") else { return }
        label = "link \(model.path(of: file)) to \(model.path(key))"
        let source = try node(file)
        let parent = try node(key.directory)
        model.step([(key, file)])
        remember(file, try volume.link(source, to: key.name, in: parent), key)
    }

    func unlinkSomething() throws {
        let keys = model.names.filter { model.nodes[$0.value]!.kind != .directory }.keys
            .sorted { ($0.directory, $0.name) < ($1.directory, $1.name) }
        guard !keys.isEmpty else { return }
        let key = random.pick(keys)
        let victim = model.names[key]!
        label = "unlink \(model.path(key))"
        let parent = try node(key.directory)
        model.step([(key, nil)])
        try volume.unlink(key.name, in: parent)
        dropIfGone(victim)
    }

    func makeDirectory() throws {
        guard let key = vacantName("d") else { return }
        label = "mkdir \(model.path(key))"
        let parent = try node(key.directory)
        let identity = volume.disk.image.nextIdentity
        model.nodes[identity] = CrashModel.Node(
            kind: .directory, classes: [classOfNewFile(key)], modes: [0o755])
        model.step([(key, identity)])
        remember(identity, try volume.makeDirectory(key.name, in: parent), key)
    }

    func removeDirectory() throws {
        let empty = model.all { $0.kind == .directory }.filter { model.children(of: $0).isEmpty }
        guard !empty.isEmpty else { return }
        let victim = random.pick(empty)
        let key = model.keys(of: victim)[0]
        label = "rmdir \(model.path(key))"
        let parent = try node(key.directory)
        model.step([(key, nil)])
        try volume.removeDirectory(key.name, in: parent)
        dropIfGone(victim)
    }

    func makeLink() throws {
        guard let key = vacantName("l") else { return }
        let target = "target \(random.below(100))"
        label = "symlink \(model.path(key))"
        let parent = try node(key.directory)
        let identity = volume.disk.image.nextIdentity
        model.nodes[identity] = CrashModel.Node(
            kind: .link(target), classes: [], modes: [])
        model.step([(key, identity)])
        remember(identity, try volume.makeLink(key.name, in: parent, to: target), key)
    }
}
