import WardFormat
import WardSystem
import WardVolume

// Operations on content: each changes the model first, then sends the request.
extension CrashRun {
    func createFile() throws {
        guard let key = vacantName("f") else { return }
        let protectionClass = classOfNewFile(key)
        if isLocked, protectionClass == .complete { return }
        label = "create \(model.path(key))"
        let parent = try node(key.directory)
        // The disk counts identities, so the next one is known before the file exists.
        let identity = volume.disk.image.nextIdentity
        let mode = random.pick([UInt32(0o644), 0o600, 0o400, 0o200])
        model.nodes[identity] = CrashModel.Node(
            kind: .file, classes: [protectionClass], modes: [mode])
        model.step([(key, identity)])
        let (entry, handle) = try volume.create(key.name, in: parent, mode: mode)
        guard try self.identity(entry) == identity else { throw Errno.ioError }
        remember(identity, entry, key)
        kernel.handles.append((identity, handle))
        if random.chance(3, in: 4) {
            try write(identity, handle, 0, random.below(3 * settings.pageBytes) + 1)
        }
    }

    func bytes(_ count: Int) -> [UInt8] {
        // Recognisable bytes, never zero.
        let seed = UInt8(truncatingIfNeeded: random.next()) | 1
        return (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 7) &* 2 &+ seed }
    }

    func write(
        _ identity: UInt64, _ handle: HandleID, _ offset: Int, _ count: Int
    ) throws {
        var content = model.nodes[identity]!.content
        label = "write \(model.path(of: identity)) at \(offset) +\(count), size \(content.count)"
        if offset > content.count {
            // The file grows with zeros first; an empty file grows by its first page before that.
            if content.isEmpty, offset > layout.firstCapacity {
                model.write(identity, [UInt8](repeating: 0, count: layout.firstCapacity))
            }
            content += [UInt8](repeating: 0, count: offset - content.count)
            model.write(identity, content)
        }
        let data = bytes(count)
        let end = offset + count
        if content.count < end {
            content += [UInt8](repeating: 0, count: end - content.count)
        }
        content.replaceSubrange(offset..<end, with: data)
        model.write(identity, content)
        try volume.write(handle, offset, data)
    }

    func writeFile() throws {
        guard let file = try pickFile() else { return }
        let handle = try handle(file)
        let size = model.nodes[file]!.content.count
        let page = settings.pageBytes
        let count = random.below(random.pick([40, page, 3 * page])) + 1
        switch random.below(10) {
        case 0..<4: try write(file, handle, size, count)  // appended
        case 4..<8: try write(file, handle, random.below(size + 1), count)
        default: try write(file, handle, size + random.below(6 * page), count)
        }
        try compare(file, handle)
    }

    /// Compares the content that a program reads while all calls succeed.
    func compare(_ file: UInt64, _ handle: HandleID) throws {
        guard random.chance(1, in: 3) else { return }
        let found = try volume.read(handle)
        if found != model.nodes[file]!.content {
            let problem = model.problem(withContent: found, of: file, layout: layout)
            lose(
                "\(label): read something else than was written: "
                    + (problem ?? "older pages, \(found.count) bytes"))
        }
    }

    func truncateFile() throws {
        guard let file = try pickFile() else { return }
        var content = model.nodes[file]!.content
        let size: Int
        switch random.below(6) {
        case 0, 1: size = 0
        case 2: size = content.count + random.below(4 * settings.pageBytes)
        case 3: size = min(content.count, layout.firstCapacity + random.below(2) * layout.capacity)
        default: size = random.below(content.count + 1)
        }
        label = "truncate \(model.path(of: file)) from \(content.count) to \(size)"
        let isByName = random.chance(1, in: 3)
        let open = isByName ? nil : try handle(file)
        let node = try node(file)
        if size > content.count, content.isEmpty, size > layout.firstCapacity {
            model.write(file, [UInt8](repeating: 0, count: layout.firstCapacity))
        }
        if size <= content.count {
            content.removeLast(content.count - size)
        } else {
            content += [UInt8](repeating: 0, count: size - content.count)
        }
        model.write(file, content)
        try volume.setSize(node, open, size)
        if let open { try compare(file, open) }
    }

    func punchFile() throws {
        guard let file = try pickFile(), model.nodes[file]!.content.count > 1 else { return }
        let handle = try handle(file)
        var content = model.nodes[file]!.content
        let start = random.below(content.count - 1)
        let count = random.below(4 * settings.pageBytes) + 1
        let end = min(content.count, start + count)
        label = "punch \(model.path(of: file)) at \(start) +\(count), size \(content.count)"
        for index in start..<end { content[index] = 0 }
        model.write(file, content)
        try volume.allocate(handle, 3, start, count)
        try compare(file, handle)
    }

    func createUnnamed() throws {
        guard let key = vacantName("f"), !isLocked else { return }
        let wanted = random.pick([ProtectionClass.complete, .none, classOfNewFile(key)])
        label = "O_TMPFILE, class \(wanted), linkat \(model.path(key))"
        let parent = try node(key.directory)
        let identity = volume.disk.image.nextIdentity
        // The content is in the model before the name: the file gets both at once for a power cut.
        let data = bytes(random.below(2 * settings.pageBytes) + 1)
        model.nodes[identity] = CrashModel.Node(
            kind: .file, versions: [[], data], classes: [wanted], modes: [0o644])
        let (entry, handle) = try volume.createUnnamed(in: parent)
        defer { volume.forget(entry.node) }
        do {
            try volume.setClass(entry.node, wanted)
            try volume.write(handle, 0, data)
            model.step([(key, identity)])
            remember(identity, try volume.link(entry.node, to: key.name, in: parent), key)
        } catch {
            volume.release(handle)
            throw error
        }
        kernel.handles.append((identity, handle))
    }
}
