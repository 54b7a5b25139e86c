import Glibc
import WardFormat
import WardSystem
import WardVolumeCheck

@testable import WardSimulatedStorage
@testable import WardVolume

/// A small volume with every feature on a simulated disk, and what a program sees in it. After a
/// change of the disk a judge compares the two.
struct TamperedVolume {
    let keys: CrashKeys
    let layout: PageLayout
    /// An earlier state, after a clean end, and while it was in use then.
    let older: DiskImage
    let olderInUse: DiskImage
    /// After the last clean end.
    let clean: DiskImage
    /// After an unclean end: `/doubtful` was written in the epoch that is in doubt, everything else
    /// before it.
    let unclean: DiskImage
    /// The content that a program sees in both.
    let truth: Sight
    static let long = String(repeating: "n", count: 200)
    static let otherLong = String(repeating: "m", count: 200)

    init(pageBytes: Int, format: VolumeFormat) throws {
        keys = CrashKeys(pageBytes: pageBytes, format: format)
        layout = PageLayout(pageBytes: pageBytes)
        let disk = SimulatedDisk(DiskImage(kind: DiskKind(order: .journal, atomicBytes: 4096)))
        try CrashVolume.create(keys, on: disk, defaultClass: .none)
        var volume = try CrashVolume(keys, on: disk)
        try TamperedVolume.fill(volume, layout)
        olderInUse = disk.image
        try volume.volume.close()
        older = disk.image
        volume = try CrashVolume(keys, on: disk)
        try TamperedVolume.change(volume, layout)
        try volume.volume.close()
        volume = try CrashVolume(keys, on: disk)
        let node = try volume.lookup("doubtful", in: 1).node
        let handle = try volume.open(node)
        let content = TamperedVolume.bytes(2 * layout.capacity + 100, 60)
        try volume.write(handle, 0, content)
        volume.release(handle)
        unclean = disk.image
        try volume.volume.close()
        clean = disk.image
        truth = try Sight(CrashVolume(keys, on: SimulatedDisk(clean)))
    }

    /// The changes between the older state and the newer one.
    private static func change(_ volume: CrashVolume, _ layout: PageLayout) throws {
        func lookup(_ name: String) throws -> NodeID { try volume.lookup(name, in: 1).node }
        let handle = try volume.open(try lookup("plain"))
        try volume.write(handle, 0, bytes(2 * layout.capacity + 100, 51))
        volume.release(handle)
        try volume.setAttribute(try lookup("note"), "user.note", bytes(20, 52))
        try volume.setClass(try lookup("c"), .complete)
        try volume.setClass(try lookup("dir"), .complete)
    }

    static func bytes(_ count: Int, _ salt: Int) -> [UInt8] {
        (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 7 &+ salt &* 31) | 1 }
    }

    static func fill(_ volume: CrashVolume, _ layout: PageLayout) throws {
        func file(
            _ name: String, _ content: [UInt8], _ protectionClass: ProtectionClass = .none,
            in parent: NodeID = 1
        ) throws -> NodeID {
            let (entry, handle) = try volume.create(name, in: parent)
            if protectionClass != .none { try volume.setClass(entry.node, protectionClass) }
            if !content.isEmpty { try volume.write(handle, 0, content) }
            volume.release(handle)
            return entry.node
        }
        let page = layout.capacity
        _ = try file("one", [1])
        let plain = try file("plain", bytes(2 * page + 100, 1))
        _ = try volume.link(plain, to: "second name", in: 1)
        let first = try file("a", bytes(page + 50, 2), .complete)
        try volume.setAttribute(first, "user.note", bytes(20, 3))
        try volume.setAttribute(first, "user.other", bytes(20, 4))
        _ = try file("b", bytes(page + 50, 5), .completeUnlessOpen)
        _ = try file("doubtful", bytes(2 * page + 100, 14))
        _ = try file("c", bytes(60, 6), .completeUntilFirstUserAuthentication)
        _ = try file("cx", bytes(60, 7), .completeWhenUserInactive)
        _ = try file("empty", [])
        _ = try file("empty a", [], .complete)
        let note = try file("note", bytes(70, 8))
        try volume.setAttribute(note, "user.note", bytes(20, 9))
        _ = try file(long, bytes(80, 10))
        _ = try file(otherLong, bytes(80, 16))
        let readOnly = try file("read only", bytes(30, 11))
        try volume.setMode(readOnly, 0o044)
        let sparse = try file("sparse", bytes(30, 12))
        let handle = try volume.open(sparse)
        try volume.write(handle, layout.start(ofPage: 5), bytes(40, 13))
        try volume.write(handle, layout.start(ofPage: 2), bytes(page, 15))
        volume.release(handle)
        _ = try volume.makeLink("link", in: 1, to: "some/where")
        _ = try volume.makeLink("other link", in: 1, to: "else/where")
        for (name, salt) in [("dir", 20), ("sibling", 30)] {
            let directory = try volume.makeDirectory(name, in: 1).node
            try volume.setClass(directory, .completeUntilFirstUserAuthentication)
            try volume.setAttribute(directory, "user.note", bytes(20, salt))
            _ = try file("inner", bytes(90, salt + 1), in: directory)
            let deep = try volume.makeDirectory("deep", in: directory).node
            _ = try file(long, bytes(50, salt + 2), in: deep)
        }
        let marked = try volume.makeDirectory("marked", in: 1).node
        try volume.setAttribute(marked, "user.ward.synced", Array("marked".utf8))
        _ = try file("inner", bytes(40, 40), in: marked)
        _ = try volume.makeLink("link", in: marked, to: "marked/where")
    }

    /// The content that a program sees in a changed image, and the events that report a problem.
    func look(at image: DiskImage) throws -> (sight: Sight, events: [String]) {
        let volume = try CrashVolume(keys, on: SimulatedDisk(image))
        let sight = Sight(volume, expecting: truth)
        return (sight, volume.events.problems)
    }

    /// Whether `ward check` finds damage or something unreachable. A foreign name alone does not
    /// count.
    func isFoundByCheck(_ image: DiskImage) throws -> Bool {
        let volume = try CrashVolume(keys, on: SimulatedDisk(image))
        let report = VolumeCheck(volume.volume, repairs: false, name: "now", threads: 1).run()
        return !report.findings.isEmpty || !report.unreachable.isEmpty
    }

    /// The content that a program sees after a repair that left nothing to do.
    func repaired(_ image: DiskImage) throws -> Sight {
        let volume = try CrashVolume(keys, on: SimulatedDisk(image))
        for isSecond in [false, true] {
            let report = VolumeCheck(volume.volume, repairs: true, name: "now", threads: 1).run()
            if report.findings.isEmpty != isSecond { throw Errno.ioError }
        }
        return Sight(volume, expecting: truth)
    }

    /// The identity of the file at a path.
    func identity(_ path: String) -> UInt64 { truth.entries[path]!.identity }
}

/// Everything that a program sees in a volume: by path, every content and every error.
struct Sight {
    enum Outcome: Equatable, CustomStringConvertible {
        case bytes([UInt8])
        case error(Errno)

        init(_ body: () throws -> [UInt8]) {
            do {
                self = .bytes(try body())
            } catch {
                self = .error(error as? Errno ?? .ioError)
            }
        }

        var description: String {
            switch self {
            case .error(let error): "\(error)"
            case .bytes(let bytes):
                "\(bytes.count) bytes, \(String(decoding: bytes.prefix(40), as: UTF8.self).debugDescription)"
            }
        }

        var isError: Bool { if case .error = self { true } else { false } }
    }

    struct Entry: Equatable {
        var identity: UInt64 = 0
        var mode: UInt32 = 0
        var size: UInt64 = 0
        var protectionClass = Outcome.bytes([])
        /// The bytes of a file, the target of a link, the names of a directory.
        var content = Outcome.bytes([])
        var attributeNames = Outcome.bytes([])
        var attributes: [String: Outcome] = [:]
    }

    private(set) var entries: [String: Entry] = [:]
    /// Paths whose look-up failed, and the error.
    private(set) var missing: [String: Errno] = [:]
    /// Found by look-up, but not listed.
    private(set) var unlisted: Set<String> = []

    init(_ volume: CrashVolume) throws {
        walk(volume, 1, "/", nil)
        if !missing.isEmpty || !volume.events.problems.isEmpty { throw Errno.ioError }
    }

    /// Walks through everything that is listed, and also looks up all of `expected`.
    init(_ volume: CrashVolume, expecting expected: Sight) {
        walk(volume, 1, "/", expected)
    }

    /// Looks again at the entry at `path`.
    mutating func look(at volume: CrashVolume, _ path: String) {
        var taken: [NodeID] = []
        defer { for node in taken.reversed() { volume.forget(node) } }
        let old = entries.removeValue(forKey: path)
        do {
            for name in path.split(separator: "/") {
                taken.append(try volume.lookup(String(name), in: taken.last ?? 1).node)
            }
            entries[path] = try Entry.read(volume, taken.last ?? 1, old).entry
        } catch {
            missing[path] = error as? Errno ?? .ioError
        }
    }

    private mutating func walk(
        _ volume: CrashVolume, _ node: NodeID, _ path: String, _ expected: Sight?
    ) {
        let prefix = path == "/" ? "/" : path + "/"
        var names: Set<String>
        do {
            let found = try Entry.read(volume, node, expected?.entries[path])
            entries[path] = found.entry
            names = Set(found.names)
        } catch {
            missing[path] = error as? Errno ?? .ioError
            return
        }
        guard mode_t(entries[path]!.mode) & S_IFMT == S_IFDIR else { return }
        for known in expected?.entries.keys ?? [:].keys
        where known != "/" && known.hasPrefix(prefix)
            && !known.dropFirst(prefix.count).contains("/")
        {
            let name = String(known.dropFirst(prefix.count))
            if names.insert(name).inserted { unlisted.insert(known) }
        }
        for name in names.sorted() {
            do {
                let found = try volume.lookup(name, in: node)
                walk(volume, found.node, prefix + name, expected)
                volume.forget(found.node)
            } catch {
                missing[prefix + name] = error as? Errno ?? .ioError
            }
        }
    }

    // MARK: Judging

    /// Compares `found` with this, the truth. `unseen`: differences without an event. `seen`:
    /// refusals with an event that names the path.
    func compare(_ found: Sight, _ events: [String]) -> (unseen: [String], seen: [String]) {
        var unseen: [String] = []
        var seen: [String] = []
        func isTold(_ path: String) -> Bool {
            events.contains { $0.hasPrefix("integrity: \(path): ") }
        }
        func parent(_ path: String) -> String {
            let end = path.lastIndex(of: "/")!
            return end == path.startIndex ? "/" : String(path[..<end])
        }
        /// Whether a missing name has a reason: its directory, or one above, is damaged or has a
        /// foreign name.
        func isExplained(_ path: String) -> Bool {
            if path == "/" { return false }
            let parent = parent(path)
            return isTold(parent) || events.contains { $0.hasPrefix("foreign: \(parent): ") }
                || found.entries[parent] == nil && isExplained(parent)
        }
        func names(_ path: String) -> [String] {
            entries.filter { $0.value.identity == entries[path]!.identity }.map(\.key)
        }
        for (path, now) in found.entries where entries[path] == nil {
            unseen.append("\(path) is new: \(now)")
        }
        for (path, was) in entries {
            guard let now = found.entries[path] else {
                // A directory above it is gone or damaged.
                if isExplained(path) || isTold(path) {
                    seen.append(path)
                } else {
                    let error = found.missing[path].map { "\($0)" } ?? "gone"
                    unseen.append("\(path): \(error), and no event")
                }
                continue
            }
            if found.unlisted.contains(path) {
                if isExplained(path) {
                    seen.append(path)
                } else {
                    unseen.append("\(path) is not listed, and no event")
                }
            }
            func check(_ what: String, _ was: Outcome, _ now: Outcome) {
                if was == now { return }
                guard case .error(let error) = now, error == .ioError else {
                    unseen.append("\(path): \(what) \(was) became \(now)")
                    return
                }
                if names(path).contains(where: isTold) {
                    seen.append(path)
                } else {
                    unseen.append("\(path): \(what): EIO without an event")
                }
            }
            let isDirectory = mode_t(was.mode) & S_IFMT == S_IFDIR
            // An authentic header or record of another file has a class, too; then nothing else in
            // it is right.
            let isRefused =
                now.content.isError
                || isDirectory && events.contains { $0.hasPrefix("foreign: \(path): ") }
            if !isRefused || now.protectionClass.isError {
                check("class", was.protectionClass, now.protectionClass)
            }
            if !isDirectory || now.content.isError { check("content", was.content, now.content) }
            check("names of attributes", was.attributeNames, now.attributeNames)
            for (name, value) in was.attributes {
                check("attribute \(name)", value, now.attributes[name] ?? .error(.noData))
            }
            if now.mode != was.mode, !now.content.isError {
                unseen.append("\(path): mode \(was.mode) became \(now.mode)")
            }
            if now.size != was.size, !now.content.isError, !isDirectory {
                unseen.append("\(path): size \(was.size) became \(now.size)")
            }
        }
        return (unseen.sorted(), seen.sorted())
    }
}

extension Sight.Entry {
    /// Everything of a node, and the names if it is a directory. `known`: its attributes are read
    /// in addition to the listed ones.
    fileprivate static func read(
        _ volume: CrashVolume, _ node: NodeID, _ known: Sight.Entry?
    ) throws -> (entry: Sight.Entry, names: [String]) {
        var entry = Sight.Entry()
        let status = try volume.attributes(node)
        entry.identity = volume.disk.identity(ofInode: status.inode) ?? 0
        entry.mode = status.mode
        entry.size = status.sizeBytes
        let type = mode_t(entry.mode) & S_IFMT
        if type == S_IFLNK {
            entry.content = Sight.Outcome { try volume.volume.readLink(node, volume.context) }
            return (entry, [])
        }
        entry.protectionClass = Sight.Outcome {
            try volume.attribute(node, "user.ward.class") ?? []
        }
        var attributes = Set(known?.attributes.keys ?? [:].keys)
        entry.attributeNames = Sight.Outcome {
            let names = try volume.volume.extendedAttributeNames(of: node, volume.context)
                .split(separator: 0).map { String(decoding: $0, as: UTF8.self) }.sorted()
            attributes.formUnion(names.filter { $0 != "user.ward.class" })
            return Array(names.joined(separator: " ").utf8)
        }
        for name in attributes {
            entry.attributes[name] = Sight.Outcome {
                guard let value = try volume.attribute(node, name) else { throw Errno.noData }
                return value
            }
        }
        var names: [String] = []
        entry.content = Sight.Outcome {
            if type == S_IFDIR {
                names = try volume.names(in: node)
                return Array(names.joined(separator: "/").utf8)
            }
            let handle = try volume.open(node, O_RDONLY)
            defer { volume.release(handle) }
            return try volume.read(handle)
        }
        return (entry, names)
    }
}

// MARK: Changing the disk

extension TamperedVolume {
    /// Whether a byte of a backing file can make a difference (docs/format.md §4). The tail behind
    /// the last whole page does not, nor do the bytes after a header without a key.
    func matters(_ offset: Int, of identity: UInt64) -> Bool {
        let content = clean.inodes[identity]!.content
        if offset >= content.size / layout.pageBytes * layout.pageBytes { return false }
        let header = content.blocks[0]!.bytes[14..<16]
        return header != [0, 0] || offset < FileHeader.bytes
    }
}

extension DiskImage {
    /// A part of the disk that is not a page.
    enum Place: Hashable {
        case name(directory: UInt64, [UInt8])
        case target(UInt64)
        case attributeName(UInt64, String)
        case attributeValue(UInt64, String)
        /// In the root's own files.
        case rootFile(UInt64, String)

        /// The README, which no program reads, and the public key of capsules, which is made again.
        var isForPeople: Bool {
            switch self {
            case .name(directory: DiskImage.rootIdentity, let name): name == Array("README".utf8)
            case .name(_, let name): name == Array(Capsule.publicKeyName.utf8)
            case .rootFile(_, let name): name == "README"
            default: false
            }
        }

        /// A name that a program gave, as it is stored.
        var isStoredName: Bool {
            guard case .name(_, let name) = self else { return false }
            return !name.contains(UInt8(ascii: ".")) && !isForPeople
        }
    }

    private static let rootFiles = ["README", "ward.state"]

    var places: [Place] {
        var found: [Place] = []
        for inode in inodes.values where inode.links > 0 {
            for (name, identity) in inode.entries {
                found.append(.name(directory: inode.identity, name))
                let text = String(decoding: name, as: UTF8.self)
                if inode.identity == DiskImage.rootIdentity, DiskImage.rootFiles.contains(text) {
                    found.append(.rootFile(identity, text))
                }
            }
            if !inode.target.isEmpty { found.append(.target(inode.identity)) }
            for name in inode.attributes.keys {
                found.append(.attributeName(inode.identity, name))
                found.append(.attributeValue(inode.identity, name))
            }
        }
        return found.sorted { "\($0)" < "\($1)" }
    }

    func count(of place: Place) -> Int {
        switch place {
        case .name(_, let name): name.count
        case .target(let identity): inodes[identity]!.target.count
        case .attributeName(_, let name): name.utf8.count
        case .attributeValue(let identity, let name): inodes[identity]!.attributes[name]!.count
        case .rootFile(let identity, _): inodes[identity]!.content.size
        }
    }

    /// Whether the volume can't be opened without it.
    func isNeeded(_ place: Place) -> Bool {
        let root = inodes[DiskImage.rootIdentity]!
        return switch place {
        case .name(let directory, let name):
            directory == root.identity
                && [".ward", "ward.state"].contains(String(decoding: name, as: UTF8.self))
        case .target(let identity): root.entries[Array(".ward".utf8)] == identity
        case .attributeName, .attributeValue: false
        case .rootFile(_, let name): name == "ward.state"
        }
    }

    /// Returns false if the store would not accept the change.
    mutating func flip(_ place: Place, _ offset: Int, _ mask: UInt8) -> Bool {
        switch place {
        case .name(let directory, let name):
            var changed = name
            changed[offset] ^= mask
            guard changed[offset] != 0, changed[offset] != UInt8(ascii: "/"),
                inodes[directory]!.entries[changed] == nil
            else { return false }
            inodes[directory]!.entries[changed] =
                inodes[directory]!.entries.removeValue(forKey: name)
        case .target(let identity):
            guard inodes[identity]!.target[offset] != mask else { return false }
            inodes[identity]!.target[offset] ^= mask
        case .attributeName(let identity, let name):
            var bytes = Array(name.utf8)
            bytes[offset] ^= mask
            guard bytes[offset] != 0, let changed = String(validating: bytes, as: UTF8.self) else {
                return false
            }
            inodes[identity]!.attributes[changed] =
                inodes[identity]!.attributes.removeValue(forKey: name)
        case .attributeValue(let identity, let name):
            inodes[identity]!.attributes[name]![offset] ^= mask
        case .rootFile(let identity, _): flip(identity, offset, mask)
        }
        return true
    }

    mutating func flip(_ identity: UInt64, _ offset: Int, _ mask: UInt8) {
        let index = offset / DiskImage.blockBytes
        makeBlock(identity, index)
        inodes[identity]!.content.blocks[index]!.bytes[offset % DiskImage.blockBytes] ^= mask
    }

    private mutating func makeBlock(_ identity: UInt64, _ index: Int) {
        while inodes[identity]!.content.blocks.count <= index {
            inodes[identity]!.content.blocks.append(nil)
        }
        if inodes[identity]!.content.blocks[index] == nil {
            inodes[identity]!.content.blocks[index] = Block(
                bytes: [UInt8](repeating: 0, count: DiskImage.blockBytes), generation: 0,
                afterChange: 0, afterLayout: 0)
        }
    }

    /// All bytes of a file.
    func bytes(of identity: UInt64) -> [UInt8] {
        let content = inodes[identity]!.content
        var bytes: [UInt8] = []
        for index in 0..<((content.size + DiskImage.blockBytes - 1) / DiskImage.blockBytes) {
            let block = index < content.blocks.count ? content.blocks[index] : nil
            bytes += block?.bytes ?? [UInt8](repeating: 0, count: DiskImage.blockBytes)
        }
        return Array(bytes.prefix(content.size))
    }

    mutating func setBytes(of identity: UInt64, _ bytes: [UInt8]) {
        inodes[identity]!.content = Content()
        var offset = 0
        while offset < bytes.count {
            let end = min(bytes.count, offset + DiskImage.blockBytes)
            let index = offset / DiskImage.blockBytes
            makeBlock(identity, index)
            inodes[identity]!.content.blocks[index]!.bytes.replaceSubrange(
                0..<(end - offset), with: bytes[offset..<end])
            offset = end
        }
        inodes[identity]!.content.size = bytes.count
    }
}
