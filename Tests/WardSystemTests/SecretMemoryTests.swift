import CWardLinux
import Glibc
import Testing
import WardCrypto

@testable import WardSystem

/// fork(2), which Swift hides: most of its runtime does not work in the child of a process with
/// threads. The children here only touch memory, write to a pipe and end.
private let forkProcess: @convention(c) () -> Int32 = {
    let symbol = dlsym(UnsafeMutableRawPointer(bitPattern: 0), "fork")!
    return unsafeBitCast(symbol, to: (@convention(c) () -> Int32).self)
}()

/// One test at a time: the tests look at a slot after its owner is gone, and no other test may get
/// it meanwhile.
@Suite("Secrets in memory", .serialized)
struct SecretMemoryTests {
    private func address(of secret: borrowing SecretBytes) -> UInt {
        secret.withUnsafeBytes { UInt(bitPattern: $0.baseAddress!) }
    }

    private func peek(_ address: UInt, _ count: Int) -> [UInt8] {
        [UInt8](
            UnsafeRawBufferPointer(start: UnsafeRawPointer(bitPattern: address), count: count))
    }

    @Test("the memory of a secret is wiped when its owner goes", arguments: [1, 32, 100, 5000])
    func wipedAfterItsEnd(count: Int) throws {
        var place: UInt = 0
        do {
            var secret = try SecretBytes(zeroed: count)
            secret.withUnsafeMutableBytes { bytes in
                for index in bytes.indices { bytes[index] = 0xA5 }
            }
            place = address(of: secret)
            #expect(peek(place, count).allSatisfy { $0 == 0xA5 })
        }
        #expect(peek(place, count).allSatisfy { $0 == 0 }, "bytes are left after deinit")
    }

    @Test("shortening wipes what is cut off, and copies are independent")
    func shortening() throws {
        var secret = try SecretBytes(random: 48)
        let place = address(of: secret)
        let copy = try secret.copy()
        secret.shorten(to: 10)
        #expect(secret.count == 10)
        #expect(peek(place + 10, 38).allSatisfy { $0 == 0 })
        #expect(copy.count == 48)
        let head = try copy.slice(0..<10)
        let (sameHead, sameWhole) = (head == secret, copy == secret)
        #expect(sameHead && !sameWhole)
    }

    @Test("at the end of a process all of a heap is wiped, slots in use too")
    func wipingEverything() throws {
        let heap = SecretHeap()
        let slots = try [32, 640, 5000].map { count in
            let slot = try heap.allocate(count)
            SystemRandom.fill(UnsafeMutableRawBufferPointer(start: slot, count: count))
            return UnsafeRawBufferPointer(start: slot, count: count)
        }
        heap.wipeEverything()
        for slot in slots { #expect(slot.allSatisfy { $0 == 0 }) }
    }

    @Test("random secrets differ, zeroed ones are zero even in a slot used before")
    func contents() throws {
        for _ in 0..<100 {
            let zero = try SecretBytes(zeroed: 32)
            #expect(zero.withUnsafeBytes { $0.allSatisfy { $0 == 0 } })
            let first = try SecretBytes(random: 32)
            let second = try SecretBytes(random: 32)
            let same = first == second
            #expect(!same)
        }
    }

    @Test("their pages are locked, left out of core dumps and wiped on fork (VmFlags lo, dd, wf)")
    func mappingFlags() throws {
        for count in [32, 640, 16384, 100_000] {
            let secret = try SecretBytes(random: count)
            let flags = try flags(ofMappingAt: address(of: secret))
            #expect(flags.isSuperset(of: ["lo", "dd", "wf"]), "\(count) bytes: \(flags.sorted())")
        }
    }

    /// The flags of the mapping that holds `address`, proc(5) `smaps`.
    private func flags(ofMappingAt address: UInt) throws -> Set<String> {
        var isThisOne = false
        for line in try readFile("/proc/self/smaps").split(separator: "\n") {
            let words = line.split(separator: " ")
            if let range = words.first?.split(separator: "-"), range.count == 2,
                let start = UInt(range[0], radix: 16), let end = UInt(range[1], radix: 16)
            {
                isThisOne = (start..<end).contains(address)
            } else if isThisOne, words.first == "VmFlags:" {
                return Set(words.dropFirst().map(String.init))
            }
        }
        return []
    }

    private func readFile(_ path: String) throws -> String {
        let file = try OwnedDescriptor(opening: path, O_RDONLY)
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 1 << 16)
        while true {
            let count = try buffer.withUnsafeMutableBytes {
                try Syscall.read(file.rawValue, $0.baseAddress!, $0.count)
            }
            if count == 0 { return String(decoding: bytes, as: UTF8.self) }
            bytes += buffer[..<count]
        }
    }

    @Test("a forked child finds zeros in place of its parent's secrets")
    func wipedOnFork() throws {
        let secret = try SecretBytes(random: 64)
        let place = UnsafeRawPointer(bitPattern: address(of: secret))!
        let child = forkProcess()
        if child == 0 {
            var sum: UInt8 = 0
            for index in 0..<64 { sum |= place.load(fromByteOffset: index, as: UInt8.self) }
            _exit(sum == 0 ? 0 : 1)
        }
        #expect(child > 0)
        var status: Int32 = 0
        waitpid(child, &status, 0)
        #expect(ward_wifexited(status) == 1 && ward_wexitstatus(status) == 0)
        #expect(secret.withUnsafeBytes { !$0.allSatisfy { $0 == 0 } }, "the parent keeps them")
    }

    /// A child makes a secret and, in ordinary memory, a marker. It sends both through a pipe and
    /// aborts. Its core must hold the marker (or the search proves nothing) and not the secret.
    @Test("a secret is not in a core dump", .enabled(if: CoreDumps.arePossible))
    func notInACore() throws {
        let directory = CoreDumps.makeDirectory()
        defer { CoreDumps.remove(directory) }
        let ends = try Syscall.pipe()
        let child = forkProcess()
        if child == 0 { CoreDumps.abortWithSecret(in: directory, tellingTo: ends.writing) }
        Syscall.close(ends.writing)
        var told = [UInt8](repeating: 0, count: 64)
        var count = 0
        while count < 64 {
            let got = try told.withUnsafeMutableBytes {
                try Syscall.read(ends.reading, $0.baseAddress! + count, 64 - count)
            }
            if got == 0 { break }
            count += got
        }
        Syscall.close(ends.reading)
        var status: Int32 = 0
        waitpid(child, &status, 0)
        try #require(count == 64 && ward_wifsignaled(status) == 1)
        let core = try #require(CoreDumps.find(in: directory), "no core was written")
        #expect(try CoreDumps.contains(core, Array(told[32...])), "the marker should be there")
        #expect(try !CoreDumps.contains(core, Array(told[..<32])), "the secret is in the core")
    }
}
