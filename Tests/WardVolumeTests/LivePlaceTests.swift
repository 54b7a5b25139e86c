import CWardLinux
import Glibc
import Synchronization
import Testing
import WardFormat
import WardSystem
import WardVolumeCheck

@testable import WardVolume

/// Format 2 while a volume is served. A person without the keys changes the backing directory under
/// nodes, open files and descriptors that are in use.
@Suite struct LivePlaceTests {
    /// A volume of format 2 with the directories `a` and `b`.
    private struct World {
        let harness: VolumeHarness
        let a: NodeID
        let b: NodeID

        init() throws {
            harness = try VolumeHarness(format: .version2)
            a = try harness.makeDirectory("a")
            b = try harness.makeDirectory("b")
        }

        init(_ harness: VolumeHarness, _ a: NodeID, _ b: NodeID) {
            self.harness = harness
            self.a = a
            self.b = b
        }

        func makeFile(_ name: String, in parent: NodeID, _ content: String) throws -> NodeID {
            let made = try harness.create(name, in: parent)
            try harness.write(made.handle, 0, Array(content.utf8))
            harness.volume.release(made.handle, harness.context)
            return made.node
        }

        func makeLink(_ name: String, in parent: NodeID, _ target: String) throws -> NodeID {
            try harness.withName(name) { name throws(Errno) in
                try harness.withName(target) { target throws(Errno) in
                    try harness.volume.makeSymbolicLink(
                        parent, name, target: target, caller: harness.caller, harness.context)
                }
            }.node
        }

        func link(_ node: NodeID, _ name: String, in parent: NodeID) throws {
            _ = try harness.withName(name) { name throws(Errno) in
                try harness.volume.link(
                    node, parent, name, caller: harness.caller, harness.context)
            }
        }

        func unlink(_ name: String, in parent: NodeID) throws {
            try harness.withName(name) { name throws(Errno) in
                try harness.volume.unlink(
                    parent, name, caller: harness.caller, harness.context)
            }
        }

        func content(_ name: String, in parent: NodeID) throws(Errno) -> String {
            let node = try harness.lookup(name, in: parent).node
            let handle = try harness.open(node, O_RDONLY)
            defer { harness.volume.release(handle, harness.context) }
            return String(decoding: try harness.read(handle, 0, 100), as: UTF8.self)
        }

        /// The path of a stored name in the backing directory. `name`: nil for the directory.
        func path(_ name: String?, in parent: NodeID) throws -> String {
            let node = harness.volume.nodes.node(parent)
            var path = harness.directory
            if let link = node.link {
                path +=
                    "/"
                    + String(
                        decoding: link.name.dropLast().map(UInt8.init(bitPattern:)), as: UTF8.self)
            }
            guard let name else { return path }
            let state = try harness.volume.backing.directoryState(of: node)
            var stored = [CChar](repeating: 0, count: 512)
            _ = try Array(name.utf8).withUnsafeBytes {
                try harness.volume.keys.names.encrypt($0, in: state.id, to: &stored)
            }
            let bytes = stored.prefix { $0 != 0 }.map(UInt8.init(bitPattern:))
            return path + "/" + String(decoding: bytes, as: UTF8.self)
        }

        /// Exchanges what two names lead to, in the backing directory.
        func exchange(_ one: String, _ other: String) throws {
            #expect(
                ward_renameat2(
                    AT_FDCWD, try path(one, in: a), AT_FDCWD, try path(other, in: b), renameExchange
                )
                    == 0)
        }

        func attribute(_ name: String, in parent: NodeID) throws -> Bool {
            ward_lgetxattr(try path(name, in: parent), FilePlaces.attributeName, nil, 0) > 0
        }

        func header(_ name: String, in parent: NodeID) throws -> FileHeader {
            let path = try path(name, in: parent)
            return try #require(try harness.volume.header(AT_FDCWD, path))
        }

        func id(of parent: NodeID) throws -> [UInt8] {
            try harness.volume.backing.directoryState(of: harness.volume.nodes.node(parent)).id
        }

        /// Lets a durable point pass, and the work that follows it.
        func settle() throws {
            try harness.volume.durablePoint()
            harness.volume.finishBackgroundWork()
        }
    }

    @Test("files that are known and open are refused under each other's names")
    func files() throws {
        let world = try World()
        let x = try world.makeFile("x", in: world.a, "in a")
        _ = try world.makeFile("y", in: world.b, "in b")
        let held = try world.harness.open(x, O_RDONLY)
        defer { world.harness.volume.release(held, world.harness.context) }
        #expect(try world.content("y", in: world.b) == "in b")
        try world.exchange("x", "y")
        #expect(throws: Errno.ioError) { try world.content("x", in: world.a) }
        #expect(throws: Errno.ioError) { try world.content("y", in: world.b) }
        #expect(
            world.harness.events.integrityFailures == [
                "/a/x: it belongs in another directory", "/b/y: it belongs in another directory",
            ])
        // The descriptor from before goes on with its file.
        #expect(try world.harness.read(held, 0, 4) == Array("in a".utf8))
        try world.exchange("x", "y")
        #expect(try world.content("x", in: world.a) == "in a")
    }

    @Test("directories that are known are refused under each other's names")
    func directories() throws {
        let world = try World()
        for (name, parent) in [("x", world.a), ("y", world.b)] {
            let inner = try world.harness.makeDirectory(name, in: parent)
            _ = try world.makeFile("f", in: inner, name)
        }
        try world.exchange("x", "y")
        #expect(throws: Errno.ioError) { try world.harness.lookup("x", in: world.a) }
        #expect(throws: Errno.ioError) { try world.harness.lookup("y", in: world.b) }
        try world.exchange("x", "y")
        let back = try world.harness.lookup("x", in: world.a).node
        #expect(try world.content("f", in: back) == "x")
    }

    @Test("links that are known are refused under each other's names")
    func links() throws {
        let world = try World()
        let x = try world.makeLink("x", in: world.a, "to x")
        _ = try world.makeLink("y", in: world.b, "to y")
        try world.exchange("x", "y")
        #expect(throws: Errno.ioError) { try world.harness.lookup("x", in: world.a) }
        try world.exchange("x", "y")
        #expect(
            try world.harness.volume.readLink(x, world.harness.context) == Array("to x".utf8))
    }

    /// The kernel may meet the foreign name first: then it knows the file by that name alone.
    @Test("a further name is refused, whichever name comes first")
    func furtherName() throws {
        let world = try World()
        _ = try world.makeFile("x", in: world.a, "in a")
        try world.harness.reopen()
        let a = try world.harness.lookup("a").node
        let b = try world.harness.lookup("b").node
        let again = World(world.harness, a, b)
        let foreign = try again.path("y", in: b)
        #expect(Glibc.link(try again.path("x", in: a), foreign) == 0)
        let node = try again.harness.lookup("y", in: b).node
        #expect(throws: Errno.ioError) { try again.harness.open(node, O_RDONLY) }
        #expect(try again.harness.lookup("x", in: a).node == node)
        // The name is forgotten once the kernel has forgotten it, and refused from then on.
        #expect(throws: Errno.ioError) { try again.harness.open(node, O_RDONLY) }
        again.harness.volume.finishBackgroundWork()
        #expect(throws: Errno.ioError) { try again.harness.lookup("y", in: b) }
        #expect(try again.content("x", in: a) == "in a")
    }

    /// The kernel keeps a name for a day. It must not lead to a file that was there for a moment.
    @Test("a file that was under a foreign name for a moment is not reached by that name")
    func foreignForAMoment() throws {
        let world = try World()
        _ = try world.makeFile("x", in: world.a, "in a")
        try world.harness.reopen()
        let a = try world.harness.lookup("a").node
        let b = try world.harness.lookup("b").node
        let again = World(world.harness, a, b)
        let (home, foreign) = (try again.path("x", in: a), try again.path("y", in: b))
        let kernel = FakeKernel(again.harness)
        #expect(Glibc.rename(home, foreign) == 0)
        let node = try again.harness.lookup("y", in: b).node
        #expect(Glibc.rename(foreign, home) == 0)
        #expect(try again.harness.lookup("x", in: a).node == node)
        #expect(try again.content("x", in: a) == "in a")
        again.harness.volume.finishBackgroundWork()
        #expect(kernel.forgottenNames == ["y"])
        #expect(try again.content("x", in: a) == "in a")
    }

    /// A walk adds a name a moment after a rename has taken it away.
    @Test("a name that is gone, and that a walk has added since, refuses no program")
    func lateName() throws {
        let world = try World()
        let file = try world.makeFile("x", in: world.a, "in a")
        let link = try world.makeLink("l", in: world.a, "somewhere")
        let nodes = [file, link].map { world.harness.volume.nodes.node($0) }
        let parents = [world.a, world.b].map { world.harness.volume.nodes.node($0) }
        try world.harness.rename("l", world.a, "m", world.b)
        let late = nodes.map { $0.link!.name }
        try world.harness.rename("x", world.a, "y", world.b)
        // A link needs no permit where it was made.
        try world.harness.rename("m", world.b, "l", world.a)
        try world.settle()
        for (index, name) in late.enumerated() { nodes[index].addLink(parents[index], name) }
        #expect(try world.content("y", in: world.b) == "in a")
        #expect(
            try world.harness.volume.readLink(link, world.harness.context)
                == Array("somewhere".utf8))
        world.harness.volume.finishBackgroundWork()
        #expect(nodes.allSatisfy { $0.allLinks.count == 1 })
        #expect(world.harness.events.integrityFailures == [])
    }

    @Test("a file that lost its last name while it was opened is looked up again")
    func lastNameGone() throws {
        let world = try World()
        let node = world.harness.volume.nodes.node(
            try world.makeFile("x", in: world.a, "in a"))
        let (volume, storage) = (world.harness.volume, PosixStorage())
        let header = try world.header("x", in: world.a)
        func descriptor() throws -> Int32 {
            try Syscall.openat(AT_FDCWD, try world.path("x", in: world.a), O_RDONLY)
        }
        let opened = try descriptor()
        defer { Syscall.close(opened) }
        node.dropLink(node.link!)
        #expect(throws: Errno.staleNFSFileHandle) {
            try volume.requirePlaces(of: node, header, opened)
        }
        // A replaced file opens by the name that it had.
        for (parent, isRight) in [(world.a, true), (world.b, false)] {
            node.kept = KeptDescriptor(
                StoreDescriptor(try descriptor(), storage),
                in: try volume.backing.directoryState(of: volume.nodes.node(parent)))
            let found = Result { () throws(Errno) in
                try volume.requirePlaces(of: node, header, opened)
            }
            #expect(((try? found.get()) != nil) == isRight)
        }
        #expect(world.harness.events.integrityFailures == [])
    }

    /// The kernel asks again for names that it knows, without a lock on the directory.
    @Test("a look-up that a rename overtakes finds no name, and no damage")
    func overtakenLookup() throws {
        let world = try World()
        _ = try world.makeFile("x", in: world.a, "in a")
        let storage = FailingStorage()
        try world.harness.reopen(storage: storage)
        let a = try world.harness.lookup("a").node
        let b = try world.harness.lookup("b").node
        let node = try world.harness.lookup("x", in: a).node
        let handle = try world.harness.open(node)
        let again = World(world.harness, a, b)
        nonisolated(unsafe) let harness = world.harness
        let inode = try harness.lookup("x", in: a).attributes.inode
        // The node has no name in the directory yet: the place is checked.
        let known = harness.volume.nodes.node(node)
        let stored = known.link!
        known.addLink(harness.volume.nodes.node(b), [CChar(1), 0])
        known.dropLink(stored)
        let hasMoved = Mutex(false)
        storage.onStatus { status in
            guard UInt64(status.st_ino) == inode else { return }
            let isFirst = hasMoved.withLock { moved in
                defer { moved = true }
                return !moved
            }
            guard isFirst else { return }
            asAnotherThread {
                let context = WorkerContext(volume: harness.volume)
                try! harness.withName("x") { old throws(Errno) in
                    try harness.withName("y") { new throws(Errno) in
                        try harness.volume.rename(
                            a, old, b, new, flags: 0, caller: harness.caller, context)
                    }
                }
                try! harness.volume.durablePoint()
                harness.volume.finishBackgroundWork()
            }
        }
        #expect(throws: Errno.noSuchFileOrDirectory) { try again.harness.lookup("x", in: a) }
        storage.onStatus(nil)
        #expect(hasMoved.withLock { $0 })
        harness.volume.release(handle, harness.context)
        #expect(try again.content("y", in: b) == "in a")
        #expect(harness.events.integrityFailures == [])
    }

    @Test("a file without a name is not reached by a name in the backing directory")
    func unnamed() throws {
        let world = try World()
        let made = try world.harness.volume.createUnnamed(
            world.a, mode: 0o600, umask: 0, flags: O_RDWR, caller: world.harness.caller,
            world.harness.context)
        try world.harness.write(made.file.handle, 0, Array("secret".utf8))
        let node = world.harness.volume.nodes.node(made.entry.node)
        let descriptor = try #require(node.file).descriptor
        #expect(
            linkat(
                AT_FDCWD, "/proc/self/fd/\(descriptor)", AT_FDCWD,
                try world.path("y", in: world.b), AT_SYMLINK_FOLLOW) == 0)
        #expect(throws: Errno.ioError) { try world.harness.lookup("y", in: world.b) }
        try world.link(made.entry.node, "z", in: world.b)
        #expect(try world.content("z", in: world.b) == "secret")
        world.harness.volume.release(made.file.handle, world.harness.context)
    }

    @Test("a moved file's header follows the durable point, and its old place ends")
    func movedFile() throws {
        let world = try World()
        let node = try world.makeFile("x", in: world.a, "moved")
        let before = try world.harness.volume.attributes(
            of: node, handle: nil, caller: world.harness.caller, world.harness.context)
        try world.harness.rename("x", world.a, "y", world.b)
        #expect(try world.header("y", in: world.b).directoryID == world.id(of: world.a))
        #expect(try world.attribute("y", in: world.b))
        try world.settle()
        #expect(try world.header("y", in: world.b).directoryID == world.id(of: world.b))
        // A copy may have the attribute and not the header.
        #expect(try world.attribute("y", in: world.b))
        let after = try world.harness.volume.attributes(
            of: node, handle: nil, caller: world.harness.caller, world.harness.context)
        #expect("\(after.modification)" == "\(before.modification)")
        #expect(try world.content("y", in: world.b) == "moved")
        let (old, now) = (try world.path("x", in: world.a), try world.path("y", in: world.b))
        #expect(Glibc.rename(now, old) == 0)
        #expect(throws: Errno.ioError) { try world.content("x", in: world.a) }
    }

    @Test("the list of places follows the names of a file")
    func places() throws {
        let world = try World()
        let node = try world.makeFile("x", in: world.a, "one")
        for name in ["y", "z"] { try world.link(node, name, in: world.b) }
        #expect(try world.content("z", in: world.b) == "one")
        try world.unlink("y", in: world.b)
        #expect(try world.attribute("x", in: world.a))
        #expect(try world.content("z", in: world.b) == "one")
        try world.unlink("z", in: world.b)
        #expect(try !world.attribute("x", in: world.a))
        // The last name is in the other directory: the header follows.
        try world.link(node, "z", in: world.b)
        try world.unlink("x", in: world.a)
        for _ in 0..<2 { try world.settle() }
        #expect(try world.header("z", in: world.b).directoryID == world.id(of: world.b))
        #expect(try world.content("z", in: world.b) == "one")
        for number in 1..<FilePlaces.mostDirectories {
            try world.link(node, "n\(number)", in: world.a)
        }
        #expect(throws: Errno.tooManyLinks) { try world.link(node, "more", in: world.a) }
        #expect(throws: Errno.noSuchFileOrDirectory) { try world.content("more", in: world.a) }
    }

    @Test("an emptied and newly written file belongs where it is, whatever names it had")
    func emptied() throws {
        let world = try World()
        let node = try world.makeFile("x", in: world.a, "one")
        let handle = try world.harness.open(node)
        try world.link(node, "y", in: world.b)
        try world.unlink("x", in: world.a)
        try world.harness.setSize(node, handle, 0)
        try world.harness.write(handle, 0, Array("two".utf8))
        try world.settle()
        try world.harness.setSize(node, handle, 0)
        try world.harness.write(handle, 0, Array("three".utf8))
        world.harness.volume.release(handle, world.harness.context)
        try world.harness.reopen()
        let b = try world.harness.lookup("b").node
        #expect(try world.content("y", in: b) == "three")
    }

    @Test("a file that lost a further name, emptied through it, belongs where its name is")
    func emptiedThroughAnotherName() throws {
        let world = try World()
        let node = try world.makeFile("x", in: world.a, "one")
        try world.link(node, "y", in: world.b)
        try world.harness.reopen()
        let a = try world.harness.lookup("a").node
        let b = try world.harness.lookup("b").node
        let again = World(world.harness, a, b)
        let found = try again.harness.lookup("y", in: b).node
        let handle = try again.harness.open(found)
        _ = try again.harness.lookup("x", in: a)
        try again.unlink("y", in: b)
        try again.harness.setSize(found, handle, 0)
        try again.harness.write(handle, 0, Array("two".utf8))
        again.harness.volume.release(handle, again.harness.context)
        try again.harness.reopen()
        let last = try again.harness.lookup("a").node
        #expect(try again.content("x", in: last) == "two")
    }

    @Test("files, directories and links that a program exchanges across directories are readable")
    func exchanged() throws {
        let world = try World()
        _ = try world.makeFile("x", in: world.a, "file")
        let inner = try world.harness.makeDirectory("y", in: world.b)
        _ = try world.makeFile("f", in: inner, "inner")
        _ = try world.makeLink("l", in: world.a, "somewhere")
        _ = try world.makeFile("m", in: world.b, "other")
        try world.harness.rename("x", world.a, "y", world.b, flags: renameExchange)
        try world.harness.rename("l", world.a, "m", world.b, flags: renameExchange)
        _ = try world.makeFile("p", in: world.a, "p")
        _ = try world.makeFile("q", in: world.b, "q")
        try world.harness.rename("p", world.a, "q", world.b, flags: renameExchange)
        for _ in 0..<2 {
            let a = try world.harness.lookup("a").node
            let b = try world.harness.lookup("b").node
            #expect(try world.content("y", in: b) == "file")
            #expect(try world.content("f", in: world.harness.lookup("x", in: a).node) == "inner")
            let link = try world.harness.lookup("m", in: b).node
            let target = try world.harness.volume.readLink(link, world.harness.context)
            #expect(target == Array("somewhere".utf8))
            #expect(try world.content("l", in: a) == "other")
            #expect(try world.content("p", in: a) == "q" && world.content("q", in: b) == "p")
            try world.harness.reopen()
        }
        let check = VolumeCheck(world.harness.volume, repairs: false, name: "now", threads: 1)
        #expect(check.run().findings == [])
        #expect(world.harness.events.integrityFailures == [])
    }

    /// A mover may be at any of the three steps of a directory's move.
    @Test("a directory is found at each step of its move")
    func directoryMove() throws {
        let world = try World()
        let moved = try world.harness.makeDirectory("x", in: world.a)
        _ = try world.makeFile("f", in: moved, "inner")
        try world.harness.rename("x", world.a, "y", world.b)
        let path = try world.path("y", in: world.b)
        #expect(access(path + "/.ward.to", F_OK) != 0)
        // As a power cut leaves it between the second and the third step.
        var old = [CChar](repeating: 0, count: 256)
        #expect(readlink(path + "/.ward", &old, 255) == 59)
        #expect(Glibc.rename(path + "/.ward", path + "/.ward.to") == 0)
        #expect(symlink(String(repeating: "A", count: 59), path + "/.ward") == 0)
        try world.harness.reopen()
        let b = try world.harness.lookup("b").node
        #expect(try world.content("f", in: world.harness.lookup("y", in: b).node) == "inner")
        #expect(world.harness.events.integrityFailures == [])
        // The next move puts it in place first, and so does a check.
        for expected: [CheckFinding.Kind] in [[.leftover], []] {
            let check = VolumeCheck(world.harness.volume, repairs: true, name: "now", threads: 1)
            #expect(check.run().findings.map(\.kind) == expected)
            #expect(access(path + "/.ward.to", F_OK) != 0)
        }
    }
}
