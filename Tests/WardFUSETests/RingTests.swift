import CWardLinux
import Glibc
import Synchronization
import Testing
import WardSystem

@testable import WardFUSE

@Suite("what FUSE over io_uring needs beside the kernel")
struct RingTests {
    @Test(
        "lists of CPUs",
        arguments: [
            ("0\n", [0]), ("0-3\n", [0, 1, 2, 3]), ("0-1,4,6-7\n", [0, 1, 4, 6, 7]), ("\n", []),
            ("", []), ("0-\n", nil), ("3-1\n", nil), ("x\n", nil), ("1-2-3\n", nil),
            ("0-65535\n", nil),
        ] as [(String, [UInt16]?)])
    func list(text: String, cpus: [UInt16]?) {
        #expect(CPUs.parse(text) == cpus)
    }

    private func machine(online: String, possible: String) throws -> CPUs? {
        let directory = try TemporaryDirectory.make("ward-cpus", in: TemporaryDirectory.parent())
        let files = [("online", online), ("possible", possible)].map {
            (path: directory + "/" + $0.0, text: Array($0.1.utf8))
        }
        defer {
            for file in files { unlink(file.path) }
            rmdir(directory)
        }
        for file in files {
            let open = try OwnedDescriptor(opening: file.path, O_CREAT | O_WRONLY, mode: 0o600)
            try Syscall.writeAll(open.rawValue, file.text, file.text.count)
        }
        return CPUs.read(from: directory)
    }

    @Test(
        "each possible CPU has a queue; where they are not counted from 0 on, the rings are not used"
    )
    func machines() throws {
        let usual = try machine(online: "0-1\n", possible: "0-3\n")
        #expect(usual == CPUs(online: [0, 1], offline: [2, 3]))
        #expect(usual?.count == 4)
        #expect(try machine(online: "1\n", possible: "1,3\n") == nil)
        #expect(try machine(online: "\n", possible: "0-1\n") == nil)
        #expect(CPUs.read(from: "/nonexistent") == nil)
        let own = try #require(CPUs.read())
        #expect(own.online.count >= sysconf(Int32(_SC_NPROCESSORS_ONLN)))
    }

    @Test("a program has moved when its last request came by another queue")
    func settling() {
        let recent = RecentQueues()
        #expect(!recent.hasMoved(77, to: 0))
        #expect(!recent.hasMoved(77, to: 0))
        #expect(recent.hasMoved(77, to: 1))
        #expect(!recent.hasMoved(77, to: 1))
        // Program 333 shares the slot of 77.
        #expect(!recent.hasMoved(77 + 256, to: 0))
        #expect(!recent.hasMoved(77, to: 0))
        // Requests of the kernel itself have program 0.
        #expect(!recent.hasMoved(0, to: 0))
        #expect(!recent.hasMoved(0, to: 1))
    }

    /// A ring entry, and its buffers as the kernel sees them.
    private struct Kernel {
        var entry: RingEntry
        var header: UnsafeMutableRawPointer { entry.buffers.0.iov_base }
        var payload: UnsafeMutableRawPointer { entry.buffers.1.iov_base }

        init() throws {
            entry = try RingEntry(queue: 3)
        }

        mutating func takes() -> Bool { entry.takeRequest() != nil }

        /// Puts a request into the buffers, as fs/fuse/dev_uring.c does.
        func put(
            _ opcode: fuse_opcode, _ structure: [UInt8], _ content: [UInt8], length: Int? = nil
        ) {
            var head = fuse_in_header()
            head.len = UInt32(length ?? 40 + structure.count + content.count)
            head.opcode = opcode.rawValue
            head.unique = 4711
            header.storeBytes(of: head, as: fuse_in_header.self)
            structure.withUnsafeBytes {
                if let base = $0.baseAddress {
                    (header + 128).copyMemory(from: base, byteCount: $0.count)
                }
            }
            content.withUnsafeBytes {
                if let base = $0.baseAddress { payload.copyMemory(from: base, byteCount: $0.count) }
            }
            let inner = header.assumingMemoryBound(to: fuse_uring_req_header.self)
            inner.pointee.ring_ent_in_out.commit_id = 4711
            inner.pointee.ring_ent_in_out.payload_sz = UInt32(content.count)
        }

        func bytes(_ range: Range<Int>) -> [UInt8] {
            range.map { (payload + $0).load(as: UInt8.self) }
        }
    }

    @Test("a request is read in one piece, and its reply lies where the kernel looks for it")
    func entry() throws {
        var kernel = try Kernel()
        defer { kernel.entry.unmap() }
        #expect(kernel.entry.queue == 3)
        kernel.put(FUSE_SYMLINK, [], Array("name\0target\0".utf8))
        let takenLink = kernel.entry.takeRequest()
        let link = try #require(takenLink)
        var body = link.body
        let (name, target) = (try body.takeName(), try body.takeName())
        #expect(Array(name) == Array("name".utf8))
        #expect(Array(target) == Array("target".utf8))
        #expect(kernel.entry.commitID == 4711)

        kernel.put(FUSE_WRITE, [UInt8](repeating: 7, count: 40), [1, 2, 3])
        let takenWrite = kernel.entry.takeRequest()
        let write = try #require(takenWrite)
        body = write.body
        let structure = try body.take(fuse_write_in.self)
        #expect(structure.size == 0x0707_0707)
        #expect(Array(body.rest) == [1, 2, 3])

        let content: [UInt8] = [9, 8, 7, 6]
        content.withUnsafeBytes {
            kernel.entry.putReply(fuse_out_header(len: 20, error: 0, unique: 4711), $0)
        }
        #expect(kernel.bytes(0..<4) == content)
        let inner = kernel.header.assumingMemoryBound(to: fuse_uring_req_header.self)
        #expect(inner.pointee.ring_ent_in_out.payload_sz == 4)
        #expect(kernel.header.load(as: fuse_out_header.self).unique == 4711)
    }

    @Test("lengths that can't be are no request")
    func nonsense() throws {
        var kernel = try Kernel()
        defer { kernel.entry.unmap() }
        kernel.put(FUSE_WRITE, [UInt8](repeating: 7, count: 40), [1], length: 40)
        let takes1 = kernel.takes()
        #expect(!takes1)
        kernel.put(FUSE_WRITE, [UInt8](repeating: 7, count: 40), [1], length: 400)
        let takes2 = kernel.takes()
        #expect(!takes2)
        // The refused request can still be answered.
        #expect(kernel.entry.commitID == 4711)
        kernel.put(FUSE_WRITE, [], [1], length: 41)
        kernel.header.assumingMemoryBound(to: fuse_uring_req_header.self).pointee.ring_ent_in_out
            .payload_sz = .max
        let takes3 = kernel.takes()
        #expect(!takes3)
    }

    @Test("wiping leaves nothing but a request that has come meanwhile")
    func wiping() throws {
        var kernel = try Kernel()
        defer { kernel.entry.unmap() }
        // A WRITE's content.
        kernel.put(FUSE_WRITE, [], [UInt8](repeating: 5, count: 9000))
        _ = kernel.entry.takeRequest()
        kernel.entry.wipe()
        #expect(kernel.bytes(0..<9000).allSatisfy { $0 == 0 })
        // The answer to a READ, with the rest of the whole pages at both ends.
        var read = fuse_read_in()
        read.size = 5000
        kernel.put(FUSE_READ, withUnsafeBytes(of: read) { Array($0) }, [])
        _ = kernel.entry.takeRequest()
        (kernel.payload - 4096).initializeMemory(
            as: UInt8.self, repeating: 6, count: 4096 + 5000 + 4096)
        kernel.entry.wipe()
        #expect(kernel.bytes(-4096..<5000 + 4096).allSatisfy { $0 == 0 })
        // The next request is there already and is larger than the last one, by less than a margin
        // or by more.
        for (before, after) in [(4, 9000), (4, 100), (5000, 9000), (0, 9000)] {
            kernel.put(FUSE_WRITE, [], [UInt8](repeating: 5, count: before))
            _ = kernel.entry.takeRequest()
            kernel.put(FUSE_WRITE, [], [UInt8](repeating: 3, count: after))
            kernel.entry.wipe(keepingRequest: true)
            #expect(kernel.bytes(0..<after).allSatisfy { $0 == 3 }, "\(before), \(after)")
            kernel.put(
                FUSE_READ, withUnsafeBytes(of: read) { Array($0) }, [])
            _ = kernel.entry.takeRequest()
            kernel.put(FUSE_WRITE, [], [UInt8](repeating: 3, count: after))
            kernel.entry.wipe(keepingRequest: true)
            #expect(kernel.bytes(0..<after).allSatisfy { $0 == 3 }, "\(before), \(after)")
        }
        // Taking a request that may wait for a disk wipes the request before it.
        kernel.put(FUSE_READ, withUnsafeBytes(of: read) { Array($0) }, [])
        _ = kernel.entry.takeRequest()
        (kernel.payload - 4096).initializeMemory(
            as: UInt8.self, repeating: 6, count: 4096 + 5000 + 4096)
        kernel.put(FUSE_FSYNC, [UInt8](repeating: 1, count: 16), [])
        _ = kernel.entry.takeRequest()
        #expect(kernel.bytes(-4096..<(-168)).allSatisfy { $0 == 0 })
        #expect(kernel.bytes(0..<5000 + 4096).allSatisfy { $0 == 0 })
        // The next request is smaller.
        kernel.put(FUSE_WRITE, [], [UInt8](repeating: 5, count: 9000))
        _ = kernel.entry.takeRequest()
        kernel.put(FUSE_WRITE, [], [1, 2, 3])
        kernel.entry.wipe(keepingRequest: true)
        #expect(kernel.bytes(0..<3) == [1, 2, 3])
        #expect(kernel.bytes(3..<9000).allSatisfy { $0 == 0 })
        // Headers and structures of requests stay.
        #expect(kernel.bytes(-4096..<(-168)).allSatisfy { $0 == 0 })
        let takenRequest = kernel.entry.takeRequest()
        let request = try #require(takenRequest)
        #expect(Array(request.body.rest) == [1, 2, 3])
    }

    /// Workers whose beats the test sets, and the queues for which the watch asked for another
    /// worker.
    private final class Watched: Sendable {
        let share = RingShare(device: -1, queues: 2)
        let workers: [RingWorker]
        let stuck = Mutex<[UInt16]>([])

        init(_ queues: [[UInt16]]) { workers = queues.map { RingWorker(queues: $0) } }

        var isWatched: Bool { share.isWatched.load(ordering: .relaxed) }

        func rests(_ worker: RingWorker) -> Bool { worker.mustRest.load(ordering: .relaxed) }

        func look(_ beats: inout [ObjectIdentifier: UInt64]) {
            RingWatch(
                share, workers: { [workers] in workers },
                needOthers: { queue in self.stuck.withLock { $0.append(queue) } }
            ).look(&beats)
        }
    }

    @Test("who has served rests when nothing more comes, and then nobody looks any more")
    func rest() {
        let watched = Watched([[0], [1]])
        let worker = watched.workers[0]
        var beats: [ObjectIdentifier: UInt64] = [:]
        worker.isClean.store(false, ordering: .relaxed)
        watched.share.wakeWatch()
        worker.beat.store(2, ordering: .relaxed)
        watched.look(&beats)
        #expect(!watched.rests(worker))
        // A request came in between.
        worker.beat.store(4, ordering: .relaxed)
        watched.look(&beats)
        #expect(!watched.rests(worker))
        watched.look(&beats)
        #expect(watched.rests(worker))
        #expect(watched.isWatched)
        worker.isClean.store(true, ordering: .relaxed)
        watched.look(&beats)
        #expect(!watched.isWatched)
        #expect(!watched.rests(watched.workers[1]))
    }

    @Test("where all workers of a queue are at the same request for long, another one is asked for")
    func stuck() {
        let watched = Watched([[0], [0], [1], [0, 1]])
        var beats: [ObjectIdentifier: UInt64] = [:]
        for worker in watched.workers { worker.beat.store(1, ordering: .relaxed) }
        watched.workers[2].beat.store(2, ordering: .relaxed)
        watched.look(&beats)
        #expect(watched.stuck.withLock { $0 } == [])
        watched.look(&beats)
        #expect(watched.stuck.withLock { $0 } == [0])
        watched.workers[0].beat.store(3, ordering: .relaxed)
        watched.look(&beats)
        #expect(watched.stuck.withLock { $0 } == [0])
    }
}
