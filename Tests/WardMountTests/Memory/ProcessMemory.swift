import Foundation

/// One mapping of another process, from /proc/PID/smaps (proc_pid_smaps(5)).
struct MemoryRegion: Sendable {
    let start: UInt
    let end: UInt
    /// `[heap]`, `[stack]`, a path, or empty.
    let name: String
    /// VmFlags, two letters each.
    var flags: Set<String> = []
    /// Bytes of private pages in memory or swapped out, of locked pages, and of swapped pages.
    var anonymousBytes = 0
    var lockedBytes = 0
    var swappedBytes = 0

    /// A mapping of `SecretHeap`: locked, left out of core dumps, wiped in a forked child.
    var isSecret: Bool { flags.isSuperset(of: ["lo", "dd", "wf"]) }
    /// Whether the mapping has pages that the process wrote: only they can hold its secrets.
    var isWorthReading: Bool { flags.contains("rd") && anonymousBytes + swappedBytes > 0 }
}

/// All memory of another process, with the registers of each thread; only for root.
struct ProcessMemory {
    let process: pid_t

    /// Whether this process may read the memory of a process that is not dumpable.
    static var mayBeRead: Bool { geteuid() == 0 }

    func regions() throws -> [MemoryRegion] {
        let text = try String(decoding: File("/proc/\(process)/smaps").contents(), as: UTF8.self)
        var result: [MemoryRegion] = []
        for line in text.split(separator: "\n") {
            let words = line.split(separator: " ", omittingEmptySubsequences: true)
            let first = words[0]
            if first.hasSuffix(":") {
                guard !result.isEmpty else { continue }
                let kilobytes = words.count > 1 ? Int(words[1]) ?? 0 : 0
                switch first {
                case "Anonymous:": result[result.count - 1].anonymousBytes = kilobytes << 10
                case "Locked:": result[result.count - 1].lockedBytes = kilobytes << 10
                case "Swap:": result[result.count - 1].swappedBytes = kilobytes << 10
                case "VmFlags:":
                    result[result.count - 1].flags = Set(words.dropFirst().map(String.init))
                default: break
                }
                continue
            }
            let ends = first.split(separator: "-")
            guard ends.count == 2, let start = UInt(ends[0], radix: 16),
                let end = UInt(ends[1], radix: 16)
            else { throw SupportError("smaps: \(line)") }
            result.append(
                MemoryRegion(
                    start: start, end: end, name: words.count > 5 ? String(words[5]) : ""))
        }
        return result
    }

    /// Calls `body` with the bytes of each run of pages that are in memory or swapped out.
    func forEachRun(
        of region: MemoryRegion, _ body: (UInt, UnsafeRawBufferPointer) -> Void
    ) throws {
        let pages = Int(region.end - region.start) >> 12
        let map = try File("/proc/\(process)/pagemap")
        let memory = try File("/proc/\(process)/mem")
        var entries = [UInt64](repeating: 0, count: pages)
        _ = entries.withUnsafeMutableBytes {
            pread(map.descriptor, $0.baseAddress!, $0.count, off_t(region.start >> 12) * 8)
        }
        // Bit 63: present; bit 62: swapped. A run is at most 16 MiB.
        var page = 0
        while page < pages {
            guard entries[page] >> 62 != 0 else {
                page += 1
                continue
            }
            var end = page + 1
            while end < pages, end - page < 4096, entries[end] >> 62 != 0 { end += 1 }
            let start = region.start + UInt(page) << 12
            var bytes = [UInt8](repeating: 0, count: (end - page) << 12)
            let got = bytes.withUnsafeMutableBytes {
                pread(memory.descriptor, $0.baseAddress!, $0.count, off_t(start))
            }
            // A mapping may vanish during the read; any other part that can't be read must not
            // count as clean.
            if got < bytes.count, kill(process, 0) != 0 { throw SupportError("it ended") }
            guard got > 0 || errno == EIO else {
                throw SupportError("can't read \(String(start, radix: 16)): errno \(errno)")
            }
            bytes.withUnsafeBytes {
                body(start, UnsafeRawBufferPointer(rebasing: $0[..<max(got, 0)]))
            }
            page = end
        }
    }

    /// The stack pointer of each thread that waits in a system call (proc_pid_syscall(5)).
    func stackPointers() -> [(thread: String, pointer: UInt)] {
        let tasks = "/proc/\(process)/task"
        let threads = (try? FileManager.default.contentsOfDirectory(atPath: tasks)) ?? []
        return threads.compactMap { thread in
            guard let call = try? File("\(tasks)/\(thread)/syscall").contents(),
                let name = try? File("\(tasks)/\(thread)/comm").contents()
            else { return nil }
            let words = String(decoding: call, as: UTF8.self).split(separator: " ")
            guard words.count >= 2,
                let pointer = UInt(words[words.count - 2].dropFirst(2), radix: 16)
            else { return nil }
            let comm = String(decoding: name, as: UTF8.self)
            return (comm.trimmingCharacters(in: .newlines), pointer)
        }
    }

    /// The name and the general and vector registers of each thread, as the kernel saved them
    /// (ptrace(2)).
    func registers() throws -> [(thread: String, bytes: [UInt8])] {
        let environment = TestEnvironment.shared
        let done = try Child.run(
            [environment.python, environment.script("registers.py"), "\(process)"],
            environment: environment.variables)
        guard done.succeeded else { throw SupportError("registers: \(done.everything)") }
        return done.output.split(separator: "\n").map { line in
            let words = line.split(separator: " ", maxSplits: 1)
            var bytes: [UInt8] = []
            let digits = Array(words[1].utf8)
            for index in stride(from: 0, to: digits.count - 1, by: 2) {
                let pair = String(decoding: digits[index...index + 1], as: UTF8.self)
                bytes.append(UInt8(pair, radix: 16) ?? 0)
            }
            return (String(words[0]), bytes)
        }
    }

    final class File {
        let descriptor: Int32
        init(_ path: String) throws {
            descriptor = open(path, O_RDONLY | O_CLOEXEC)
            guard descriptor >= 0 else { throw SupportError("can't open \(path): errno \(errno)") }
        }
        deinit { close(descriptor) }

        /// The whole file, in several reads: Foundation takes the first short read of such a file
        /// for its end.
        func contents() -> [UInt8] {
            var bytes: [UInt8] = []
            var piece = [UInt8](repeating: 0, count: 65_536)
            while true {
                let count = read(descriptor, &piece, piece.count)
                guard count > 0 else { return bytes }
                bytes += piece[..<count]
            }
        }
    }
}
