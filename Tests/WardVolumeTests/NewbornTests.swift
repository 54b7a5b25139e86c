import Glibc
import Synchronization
import Testing
import WardSystem

@testable import WardVolume

/// A walk through all files may meet a file that a program is just creating. Its name is already in
/// the backing store, but the program's node of it is not yet known. The walk makes a second node
/// and does not see what the program does then.
@Suite struct NewbornTests {
    private let storage = CreatingStorage()

    /// Makes the node that a walk would make of the name of the next new file. `then`: the walk's
    /// work before the program goes on.
    private func meet(_ volume: Volume, then: @escaping @Sendable (Node) -> Void) -> Met {
        let met = Met()
        storage.afterCreation.withLock {
            $0 = { descriptor in
                guard
                    let inode = (try? volume.storage.fstat(descriptor)).map({ UInt64($0.st_ino) }),
                    let root = try? volume.backing.directoryDescriptor(of: volume.root)
                else { return }
                var stored: [CChar] = []
                try? volume.storage.list(root.rawValue) { entry in
                    if entry.inode == inode { stored = entry.name.zeroTerminated }
                }
                let node = volume.nodes.table.retain(inode: inode, type: S_IFREG)
                node.addLink(volume.root, stored)
                then(node)
                met.node.withLock { $0 = node }
            }
        }
        return met
    }

    @Test("what a program gives a file that it is making is not taken away by the mending pass")
    func mending() throws {
        let harness = try VolumeHarness(storage: storage)
        let volume = harness.volume
        let walk = WorkerContext(volume: volume)
        let met = meet(volume) { node in _ = try? volume.acquire(node, walk) }
        let (node, handle) = try harness.create("new")
        let name = Array("user.a".utf8)
        try name.withUnsafeBytes { name throws in
            try Array("1".utf8).withUnsafeBytes { value throws in
                try volume.setExtendedAttribute(
                    of: node, name, value: value, flags: 0, dropSetGroupID: false,
                    caller: harness.caller, harness.context)
            }
        }
        let other = try #require(met.node.withLock { $0 })
        let file = try #require(other.file)
        #expect(other.id != node, "the program's is another one")
        #expect(volume.isNewborn(file, { false }) == true)
        #expect(volume.mendFile(other, walk, { false }))
        try name.withUnsafeBytes { name throws in
            #expect(
                try volume.extendedAttribute(of: node, name, harness.context) == Array("1".utf8))
        }
        volume.release(file, walk)
        volume.nodes.table.release(other, lookups: 1)
        harness.volume.release(handle, harness.context)
        // An empty file that no program is creating.
        let (_, empty) = try harness.create("empty")
        #expect(volume.isNewborn(empty.object(as: FileHandle.self).file, { false }) == false)
        harness.volume.release(empty, harness.context)
    }

    @Test("a walk that opens such a file late takes nothing of it away when it closes it")
    func late() throws {
        let harness = try VolumeHarness(storage: storage)
        let volume = harness.volume
        let walk = WorkerContext(volume: volume)
        let met = meet(volume) { _ in }
        let (_, handle) = try harness.create("new")
        let other = try #require(met.node.withLock { $0 })
        let content = (0..<100_000).map { UInt8(truncatingIfNeeded: $0 &* 7) }
        try harness.write(handle, 0, Array(content[..<10_000]))
        let file = try volume.acquire(other, walk).file
        #expect(file.header != nil)
        try harness.write(handle, 10_000, Array(content[10_000...]))
        #expect(volume.isNewborn(file, { false }) == true)
        volume.release(file, walk)
        volume.nodes.table.release(other, lookups: 1)
        #expect(try harness.read(handle, 0, 200_000) == content)
        harness.volume.release(handle, harness.context)
        try harness.reopen()
        let again = try harness.open(try harness.lookup("new").node)
        #expect(try harness.read(again, 0, 200_000) == content)
    }
}

private final class Met: Sendable {
    let node = Mutex<Node?>(nil)
}

/// The real backing store, with a hook between a new file's name and the return to its creator.
private final class CreatingStorage: PosixStorage, @unchecked Sendable {
    // Sendable: the added state is behind a mutex.
    let afterCreation = Mutex<(@Sendable (Int32) -> Void)?>(nil)

    override func openat(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ flags: Int32, mode: mode_t
    ) throws(Errno) -> Int32 {
        let descriptor = try super.openat(directory, path, flags, mode: mode)
        if flags & O_CREAT != 0 {
            let body = afterCreation.withLock { body in
                defer { body = nil }
                return body
            }
            asAnotherThread { body?(descriptor) }
        }
        return descriptor
    }
}
