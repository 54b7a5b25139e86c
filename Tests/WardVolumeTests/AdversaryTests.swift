import Foundation
import Glibc
import Testing
import WardCrypto
import WardFormat
import WardSystem

@testable import WardVolume

/// The table of adversaries in docs/threat-model.md, section 10 (format 2). Each adversary has the
/// backing store, the device's files, a foothold in the mount, or several of these. Each attempt is
/// made on every kind of thing, in the open volume and before the first unlock.
@Suite("Adversaries")
struct AdversaryTests {
    /// The parts that an adversary can have.
    struct Means: OptionSet, CustomTestStringConvertible {
        let rawValue: Int
        /// Writing to the backing directory.
        static let store = Means(rawValue: 1)
        /// The device's files: the volume key and class D's key.
        static let device = Means(rawValue: 2)

        var testDescription: String {
            [(Means.store, "store"), (.device, "device files")]
                .filter { contains($0.0) }.map(\.1).joined(separator: ", ")
        }
    }

    /// The kinds of victims, by their names in `private`.
    static let kinds = [
        "file", "sparse", "emptied", "several names", longName, "directory", "link", "empty",
    ]
    static let longName = String(repeating: "n", count: 200)
    /// The one kind that holds nothing to authenticate.
    static let unbound = ["empty"]

    /// The result of a program's look at a name.
    enum Sight: Equatable {
        case refused
        case served(String)
    }

    // MARK: Moving into the adversary's own directory

    /// The adversary looks through their own directory, before the unlock and after it.
    @Test(
        "what a person moves from a private directory into their own",
        arguments: [Means.store, [.store, .device]], [false, true])
    func moved(means: Means, isOpen: Bool) throws {
        for kind in Self.kinds {
            let world = try World()
            try world.harness.reboot()
            try world.maid.move(
                "private/\(kind)", to: "mine/bait", world.harness,
                remaking: means.contains(.device))
            if isOpen { try world.harness.unlockFirst() }
            let sight = try world.sight("bait", in: "mine")
            switch (means.contains(.device), Self.unbound.contains(kind)) {
            case (false, false):
                #expect(sight == .refused, "\(kind)")
                #expect(
                    world.harness.events.integrityFailures.contains { $0.hasPrefix("/mine/bait") },
                    "\(kind)")
            case (true, _), (_, true):
                // Named in the table: the volume key makes every binding to a directory. Content of
                // class A stays closed until the unlock.
                let isClosed = !isOpen && !["directory", "link", "empty"].contains(kind)
                #expect(sight == (isClosed ? .refused : .served(world.content(kind))), "\(kind)")
            }
        }
    }

    // MARK: Weakening

    @Test(
        "classes that a person writes, with the store alone and with the device's files",
        arguments: [Means.store, [.store, .device]])
    func weakened(means: Means) throws {
        let world = try World()
        try world.harness.reboot()
        try world.maid.rewriteRecord(
            of: "private", world.harness, isRight: means.contains(.device)
        ) {
            $0.protectionClass = .none
            $0.seal = ClassSeal.noDirectorySeal
        }
        try world.harness.unlockFirst()
        guard means.contains(.device) else {
            #expect(throws: Errno.ioError) { try world.create("new", in: "private") }
            return
        }
        let new = try world.create("new", in: "private")
        #expect(try world.harness.classOf(new) == "NSFileProtectionComplete")
        #expect(world.harness.events.integrityFailures.count == 1)
    }

    @Test("the device's files alone read class D, and no other class")
    func deviceFiles() throws {
        let world = try World()
        try world.harness.reboot()
        let file = try world.harness.lookup(
            "file", in: try world.harness.lookup("private").node
        ).node
        #expect(throws: Errno.notPermitted) { try world.harness.open(file, O_RDONLY) }
        #expect(try world.sight("note", in: "mine") == .served("mine"))
    }

    @Test("a foothold alone gets nothing of another directory")
    func foothold() throws {
        let world = try World()
        let mine = try world.harness.lookup("mine").node
        for kind in Self.kinds {
            #expect(throws: Errno.noSuchFileOrDirectory) {
                try world.harness.lookup(kind, in: mine)
            }
        }
    }

    // MARK: The world

    /// A directory of class A with a victim of each kind, and a directory of class D that belongs
    /// to the adversary.
    struct World {
        let harness: VolumeHarness
        let maid = MaidWithDeviceFiles()

        init() throws {
            harness = try VolumeHarness(format: .version2, defaultClass: .none)
            let mine = try harness.makeDirectory("mine")
            try write("note", "mine", in: mine)
            let directory = try harness.makeDirectory("private")
            try harness.setClass(directory, "A")
            for kind in kinds where !["directory", "link"].contains(kind) {
                try write(kind, content(kind), in: directory)
            }
            let sparse = try harness.lookup("sparse", in: directory).node
            let handle = try harness.open(sparse)
            try harness.write(handle, 50_000, [1])
            harness.volume.release(handle, harness.context)
            try harness.setClass(try harness.lookup("emptied", in: directory).node, "B")
            let several = try harness.lookup("several names", in: directory).node
            try harness.withName("another") { name throws(Errno) in
                _ = try harness.volume.link(
                    several, directory, name, caller: harness.caller, harness.context)
            }
            let inner = try harness.makeDirectory("directory", in: directory)
            try write("inner", "x", in: inner)
            try harness.withName("link") { name throws(Errno) in
                try harness.withName("target") { target throws(Errno) in
                    _ = try harness.volume.makeSymbolicLink(
                        directory, name, target: target, caller: harness.caller,
                        harness.context)
                }
            }
        }

        func content(_ kind: String) -> String {
            switch kind {
            case "empty", "emptied": ""
            case "directory": "inner"
            case "link": "target"
            default: "content of \(kind)"
            }
        }

        private func write(_ name: String, _ text: String, in parent: NodeID) throws {
            let (_, handle) = try harness.create(name, in: parent)
            if !text.isEmpty { try harness.write(handle, 0, Array(text.utf8)) }
            harness.volume.release(handle, harness.context)
        }

        func create(_ name: String, in parent: String) throws -> NodeID {
            let parent = try harness.lookup(parent).node
            let (node, handle) = try harness.create(name, in: parent)
            harness.volume.release(handle, harness.context)
            return node
        }

        /// A program's look at a name: the beginning of a file, a link's target, the names in a
        /// directory.
        func sight(_ name: String, in parent: String) throws -> Sight {
            do throws(Errno) {
                let parent = try harness.lookup(parent).node
                let entry = try harness.lookup(name, in: parent)
                switch mode_t(entry.attributes.mode) & S_IFMT {
                case S_IFDIR:
                    return .served(try harness.names(in: entry.node).joined(separator: " "))
                case S_IFLNK:
                    let target = try harness.volume.readLink(entry.node, harness.context)
                    return .served(String(decoding: target, as: UTF8.self))
                default:
                    let handle = try harness.open(entry.node, O_RDONLY)
                    defer { harness.volume.release(handle, harness.context) }
                    let bytes = try harness.read(handle, 0, 1000)
                    return .served(
                        String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self))
                }
            } catch {
                #expect(error == .ioError || error == .notPermitted)
                return .refused
            }
        }
    }
}

extension MaidWithDeviceFiles {
    /// Moves a backing file, directory or link. `remaking`: its binding to the directory is made
    /// anew, with the volume key.
    func move(
        _ source: String, to target: String, _ harness: VolumeHarness, remaking: Bool
    ) throws {
        let from = try place(source, harness)
        let to = try place(target, harness)
        let keys = harness.volume.keys
        if remaking { try rebind(from, to, harness) }
        // A long name's other half stays: the new name is short.
        try FileManager.default.moveItem(atPath: from.path, toPath: to.path)
        guard remaking,
            let target = try? FileManager.default.destinationOfSymbolicLink(atPath: to.path),
            let sealed = Base64URL.decode(target)
        else { return }
        let plain = try keys.links.open(sealed, associatedData: from.parentID)
            .withUnsafeBytes { [UInt8]($0) }
        try FileManager.default.removeItem(atPath: to.path)
        try FileManager.default.createSymbolicLink(
            atPath: to.path,
            withDestinationPath: Base64URL.encode(
                try plain.withUnsafeBytesTyped { plain throws(Errno) in
                    try keys.links.seal(plain, associatedData: to.parentID)
                }))
    }

    private func rebind(
        _ from: Place, _ to: Place, _ harness: VolumeHarness
    ) throws {
        if let record = try? record(at: from.path, parentID: from.parentID, harness) {
            return try write(record, to: from.path, parentID: to.parentID, harness)
        }
        guard (try? FileManager.default.destinationOfSymbolicLink(atPath: from.path)) == nil,
            var header = try header(at: from.path, harness)
        else { return }
        header.directoryID = to.parentID
        let file = try FileHandle(forUpdating: URL(fileURLWithPath: from.path))
        var bytes = [UInt8](repeating: 0, count: FileHeader.bytes)
        bytes.withUnsafeMutableBytes {
            header.write(
                to: $0.baseAddress!, macKey: harness.volume.keys.headers, format: .version2)
        }
        try file.write(contentsOf: Data(bytes))
        try file.close()
    }
}
