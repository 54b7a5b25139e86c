import Glibc
import Testing
import WardFormat
import WardSystem
import WardVolumeCheck

@testable import WardSimulatedStorage
@testable import WardVolume

/// Format 2: a file, directory or link that a person without the keys puts into another directory
/// (docs/threat-model.md §10). Every kind is put under a name of every kind, exchanged and as a
/// further name. Files that programs moved and linked themselves stay readable.
@Suite struct PlaceTests {
    /// The kinds of things in `/a` and `/b`, by their names there.
    static let kinds = [
        "file", "large", "sparse", "header", "note", long, "directory", "link", "far link",
        "moved file", "moved directory",
    ]
    /// The kinds that hold nothing to authenticate, and a link that was made in the other
    /// directory. The threat model names them.
    static let unbound = ["empty", "pipe", "moved link"]
    /// One of each that is stored in its own way.
    static let someKinds = ["file", long, "directory", "far link"]
    static let long = String(repeating: "n", count: 200)

    /// Two directories with one of each kind in each. The things whose name begins with "moved"
    /// were made in the other directory.
    static func fill(_ volume: CrashVolume) throws {
        let directories = try ["a", "b"].map { try volume.makeDirectory($0, in: 1).node }
        for (index, parent) in directories.enumerated() {
            let salt = index * 100
            let other = directories[1 - index]
            func file(_ name: String, _ count: Int, in parent: NodeID) throws -> NodeID {
                let (entry, handle) = try volume.create(name, in: parent)
                if count > 0 {
                    try volume.write(handle, 0, TamperedVolume.bytes(count, salt + count % 91))
                }
                volume.release(handle)
                return entry.node
            }
            _ = try file("file", 60, in: parent)
            _ = try file("large", 9000, in: parent)
            _ = try file(long, 70, in: parent)
            _ = try file("empty", 0, in: parent)
            try volume.setAttribute(
                try file("note", 80, in: parent), "user.note", TamperedVolume.bytes(9, salt))
            try volume.setClass(try file("header", 0, in: parent), .complete)
            let sparse = try volume.open(try file("sparse", 50, in: parent))
            try volume.write(sparse, 30_000, TamperedVolume.bytes(40, salt))
            volume.release(sparse)
            let directory = try volume.makeDirectory("directory", in: parent).node
            _ = try file("inner", 90, in: directory)
            let text = String(repeating: "t", count: 3200)
            _ = try volume.makeLink("link", in: parent, to: "somewhere \(index)")
            _ = try volume.makeLink("far link", in: parent, to: "\(text)\(index)")
            _ = try Array("pipe".utf8).withUnsafeBytes {
                try volume.volume.makeNode(
                    parent, $0, mode: UInt32(S_IFIFO) | 0o644, device: 0, umask: 0,
                    caller: CrashVolume.caller, volume.context)
            }

            let moved = "moved \(index)"
            _ = try file(moved, 110, in: other)
            let movedDirectory = try volume.makeDirectory(moved + "d", in: other).node
            _ = try file("inner", 120, in: movedDirectory)
            _ = try volume.makeLink(moved + "l", in: other, to: "moved \(index)")
            try volume.rename(moved, in: other, to: "moved file", in: parent)
            try volume.rename(moved + "d", in: other, to: "moved directory", in: parent)
            try volume.rename(moved + "l", in: other, to: "moved link", in: parent)
        }
        // Names of one file in both directories, and in one of them twice.
        let (several, handle) = try volume.create("shared", in: directories[0])
        try volume.write(handle, 0, TamperedVolume.bytes(130, 1))
        volume.release(handle)
        _ = try volume.link(several.node, to: "shared too", in: directories[0])
        _ = try volume.link(several.node, to: "shared", in: directories[1])
        let link = try volume.makeLink("shared link", in: directories[0], to: "shared").node
        _ = try volume.link(link, to: "shared link", in: directories[1])
    }

    @Test("every kind under every name of another directory", arguments: [512, 4096])
    func everyPair(pageBytes: Int) throws {
        let world = try World(pageBytes: pageBytes)
        #expect(world.honest.problems == [], "an honest file is refused")
        for kind in Self.kinds {
            for other in pageBytes == 4096 ? Self.kinds + Self.unbound : Self.someKinds {
                try world.judge(kind, other, "exchanged") { image in
                    let (one, two) = (image.name(world, "/a", kind), image.name(world, "/b", other))
                    let inode = image.inodes[one.directory]!.entries[one.name]!
                    image.inodes[one.directory]!.entries[one.name] =
                        image.inodes[two.directory]!.entries[two.name]
                    image.inodes[two.directory]!.entries[two.name] = inode
                }
                try world.judge(kind, other, "as a further name") { image in
                    let (one, two) = (image.name(world, "/a", kind), image.name(world, "/b", other))
                    image.inodes[two.directory]!.entries[two.name] =
                        image.inodes[one.directory]!.entries[one.name]
                }
            }
        }
    }

    @Test("the check puts back what was exchanged, and takes a further name away")
    func repair() throws {
        let world = try World(pageBytes: 4096)
        for kind in Self.kinds {
            for other in Self.someKinds {
                var image = world.image
                let (one, two) = (image.name(world, "/a", kind), image.name(world, "/b", other))
                let inode = one.inode(image)
                image.inodes[one.directory]!.entries[one.name] = two.inode(image)
                image.inodes[two.directory]!.entries[two.name] = inode
                let exchanged = try world.repaired(image, "\(kind) and \(other) exchanged")
                #expect(exchanged == world.honest.sight, "\(kind) and \(other) exchanged")

                image = world.image
                image.inodes[two.directory]!.entries[two.name] = inode
                // A directory has one name, so the first one goes.
                if image.inodes[inode]!.mode & S_IFMT == S_IFDIR {
                    image.inodes[one.directory]!.entries[one.name] = nil
                }
                var expected = world.honest.sight.filter { !$0.key.hasPrefix("/b/\(other)") }
                for (path, content) in world.honest.sight
                where path.hasPrefix("/b/\(other) ") { expected[path] = content }
                let found = try world.repaired(image, "\(kind) under \(other)").filter {
                    !$0.key.contains("recovered-")
                }
                let isDirectory = kind.hasSuffix("directory")
                for (path, content) in expected
                where !isDirectory || !path.hasPrefix("/a/\(kind)") {
                    #expect(found[path] == content, "\(kind) under \(other): \(path)")
                }
            }
        }
    }

    /// The old place of a moved file ends with the durable point after the move.
    @Test("what a program moved, put back where it was")
    func putBack() throws {
        let world = try World(pageBytes: 4096)
        for kind in ["moved file", "moved directory"] {
            var image = world.image
            let name = image.name(world, "/a", kind)
            let place = image.name(world, "/b", "file")
            image.inodes[place.directory]!.entries[place.name] =
                image.inodes[name.directory]!.entries[name.name]
            let (sight, problems) = try world.look(at: image)
            #expect(sight["/b/file"] == "EIO", "\(kind): \(sight["/b/file"] ?? "")")
            #expect(problems.contains { $0.hasPrefix("integrity: /b/file: ") }, "\(kind)")
        }
    }

    /// A link authenticates in the directory that it was made in, always.
    @Test("a moved link, put back where it was made, is not detected")
    func linkPutBackIsNotDetected() throws {
        let world = try World(pageBytes: 4096)
        var image = world.image
        let (name, place) = (image.name(world, "/a", "moved link"), image.name(world, "/b", "file"))
        image.inodes[place.directory]!.entries[place.name] = name.inode(image)
        let (sight, problems) = try world.look(at: image)
        #expect(sight["/b/file"] == "link moved 0" && problems == [])
    }

    @Test("a file with names in several directories is readable by each of them")
    func severalNames() throws {
        let world = try World(pageBytes: 4096)
        let seen = world.honest.sight
        #expect(seen["/b/shared"] == seen["/a/shared too"] && seen["/b/shared"] != "EIO")
        #expect(seen["/b/shared link"] == seen["/a/shared link"])
        // Without the list of places the file authenticates in the header's directory alone.
        var image = world.image
        let inode = image.name(world, "/a", "shared").inode(image)
        #expect(image.inodes[inode]!.attributes["user.ward.places"] != nil)
        image.inodes[inode]!.attributes["user.ward.places"] = nil
        let (sight, _) = try world.look(at: image)
        #expect(sight["/a/shared"] == seen["/a/shared"])
        #expect(sight["/b/shared"] == "EIO")
    }

    /// The volume on a simulated disk, and what a program sees by each path.
    struct World {
        let keys: CrashKeys
        let image: DiskImage
        let names: [String: [UInt8]]
        let directories: [String: UInt64]
        let honest: (sight: [String: String], problems: [String])

        init(pageBytes: Int) throws {
            keys = CrashKeys(pageBytes: pageBytes, format: .version2)
            let disk = SimulatedDisk(DiskImage(kind: DiskKind(order: .journal, atomicBytes: 4096)))
            try CrashVolume.create(keys, on: disk, defaultClass: .none)
            let volume = try CrashVolume(keys, on: disk)
            try fill(volume)
            var names: [String: [UInt8]] = [:]
            var directories: [String: UInt64] = [:]
            for path in ["/a", "/b"] {
                let node = volume.volume.nodes.node(
                    try volume.lookup(String(path.dropFirst()), in: 1).node)
                directories[path] =
                    disk.image.inodes.first { $0.value.number == node.inode }!.key
                let state = try volume.volume.backing.directoryState(of: node)
                for name in kinds + unbound + ["shared"] {
                    var stored = [CChar](repeating: 0, count: 512)
                    _ = try Array(name.utf8).withUnsafeBytes {
                        try volume.volume.keys.names.encrypt($0, in: state.id, to: &stored)
                    }
                    names[path + "/" + name] = stored.prefix { $0 != 0 }.map(
                        UInt8.init(bitPattern:))
                }
            }
            self.names = names
            self.directories = directories
            try volume.volume.close()
            image = disk.image
            honest = try World.look(at: image, keys)
        }

        func look(at image: DiskImage) throws -> (sight: [String: String], problems: [String]) {
            try World.look(at: image, keys)
        }

        /// The content after repairs that leave nothing to do.
        func repaired(_ image: DiskImage, _ what: String) throws -> [String: String] {
            let disk = SimulatedDisk(image)
            let volume = try CrashVolume(keys, on: disk)
            // The long target of a link that an attack removed is taken away once all links are
            // where they belong.
            for run in 0..<3 {
                let report = VolumeCheck(volume.volume, repairs: true, name: "now", threads: 1)
                    .run()
                let isExpected =
                    switch run {
                    case 0: report.findings.contains { $0.kind == .place }
                    case 1: report.findings.allSatisfy { $0.kind == .leftover }
                    default: report.findings.isEmpty
                    }
                #expect(isExpected, "\(what), run \(run): \(report.findings)")
                #expect(
                    report.isComplete && report.repaired == report.findings.count, "\(what)")
            }
            try volume.volume.close()
            return try look(at: disk.image).sight
        }

        /// The content by each path: a hexadecimal text, "EIO", or the type.
        private static func look(
            at image: DiskImage, _ keys: CrashKeys
        ) throws -> (sight: [String: String], problems: [String]) {
            let volume = try CrashVolume(keys, on: SimulatedDisk(image))
            var sight: [String: String] = [:]
            func see(_ name: String, _ parent: NodeID, _ path: String) {
                do {
                    let entry = try volume.lookup(name, in: parent)
                    defer { volume.forget(entry.node) }
                    switch mode_t(entry.attributes.mode) & S_IFMT {
                    case S_IFDIR:
                        sight[path] = "directory"
                        for inner in try volume.names(in: entry.node) {
                            see(inner, entry.node, path + "/" + inner)
                        }
                    case S_IFREG:
                        let handle = try volume.open(entry.node, O_RDONLY)
                        defer { volume.release(handle) }
                        sight[path] = "file \(try volume.read(handle))"
                    case S_IFLNK:
                        let target = try volume.volume.readLink(entry.node, volume.context)
                        sight[path] = "link \(String(decoding: target, as: UTF8.self))"
                    default: sight[path] = "other"
                    }
                } catch let error as Errno {
                    sight[path] = error == .ioError ? "EIO" : "\(error)"
                } catch {
                    sight[path] = "\(error)"
                }
            }
            for directory in ["a", "b"] {
                see(directory, 1, "/" + directory)
            }
            return (sight, volume.events.problems)
        }

        private func parent(of path: String) -> String {
            String(path[..<path.lastIndex(of: "/")!])
        }

        /// Applies an attack that brings `/a/kind` under the name `/b/other`. Every path shows what
        /// it showed before, or is refused with an event. Things without anything to authenticate
        /// are shown.
        func judge(
            _ kind: String, _ other: String, _ what: String, _ attack: (inout DiskImage) -> Void
        ) throws {
            var changed = image
            attack(&changed)
            let (sight, problems) = try look(at: changed)
            let label = "\(kind) under \(other), \(what)"
            #expect(sight["/b/\(other)"] == "EIO", "\(label): \(sight["/b/\(other)"] ?? "gone")")
            #expect(problems.contains { $0.hasPrefix("integrity: /b/\(other): ") }, "\(label)")
            for (path, was) in honest.sight where sight[path] != was {
                let isUnbound =
                    unbound.contains(other) && path == "/a/\(kind)"
                    || sight[path] == nil
                        && sight[parent(of: path)] != honest.sight[parent(of: path)]
                #expect(
                    isUnbound || sight[path] == "EIO",
                    "\(label): \(path) shows \(sight[path] ?? "nothing")")
            }
            for (path, now) in sight where honest.sight[path] == nil {
                Issue.record("\(label): \(path) is new: \(now)")
            }
        }
    }
}

/// A stored name in its directory.
private struct StoredPlace {
    let directory: UInt64
    let name: [UInt8]

    func inode(_ image: DiskImage) -> UInt64 { image.inodes[directory]!.entries[name]! }
}

extension DiskImage {
    fileprivate func name(_ world: PlaceTests.World, _ directory: String, _ name: String)
        -> StoredPlace
    {
        StoredPlace(
            directory: world.directories[directory]!, name: world.names[directory + "/" + name]!)
    }
}
