import Glibc
import WardControl
import WardSystem

// Reads from /proc the files that other processes use, without opening those files.

/// An open descriptor of a process, proc_pid_fdinfo(5).
struct DescriptorInformation: Equatable {
    var mountID: UInt32
    /// From Linux 5.14 on.
    var inode: UInt64?
    var use: Holder.Use

    /// The flag `O_PATH`, which Glibc's Swift module lacks.
    private static let namingOnly: Int32 = 0o10000000

    /// Nil where the line `mnt_id` or `flags` is missing.
    init?(parsing text: [UInt8]) {
        // Runs once for each descriptor on the machine, so no line becomes a String.
        let text = [UInt8(ascii: "\n")] + text + [0]
        func value(_ name: StaticString, base: Int32) -> UInt64? {
            text.withUnsafeBytes { text in
                let start = text.baseAddress!.assumingMemoryBound(to: CChar.self)
                let key = UnsafeRawPointer(name.utf8Start).assumingMemoryBound(to: CChar.self)
                guard let found = strstr(start, key) else { return nil }
                let digits = UnsafePointer(found) + name.utf8CodeUnitCount
                var end: UnsafeMutablePointer<CChar>?
                let value = strtoull(digits, &end, base)
                return end.map { UnsafePointer($0) } == digits ? nil : UInt64(value)
            }
        }
        guard let mountID = value("\nmnt_id:\t", base: 10).flatMap(UInt32.init(exactly:)),
            let flags = value("\nflags:\t", base: 8).flatMap(Int32.init(exactly:))
        else { return nil }
        inode = value("\nino:\t", base: 10)
        self.mountID = mountID
        use =
            flags & DescriptorInformation.namingOnly != 0
            ? .path
            : flags & O_ACCMODE == O_RDWR
                ? .readWrite : flags & O_ACCMODE == O_WRONLY ? .write : .read
    }
}

/// A mapping of a file, proc_pid_maps(5).
struct MappingInformation: Hashable {
    var inode: UInt64
    var use: Holder.Use

    /// Parses one line; nil where it is not a mapping of a file on the device 0:`minor`.
    ///
    /// `7f3c1a000000-7f3c1a021000 rw-s 00000000 00:2f 1234567    /mnt/a`
    init?(parsing line: UnsafeRawBufferPointer, deviceMinor minor: UInt32) {
        // Almost every line is of another device; this test finds that without splitting the line.
        guard MappingInformation.isOfAnonymousDevice(line) else { return nil }
        var fields = line.split(separator: UInt8(ascii: " "), maxSplits: 5)[...]
        guard fields.count >= 5 else { return nil }
        fields.removeFirst()
        let permissions = fields.removeFirst()
        fields.removeFirst()
        let device = fields.removeFirst().split(separator: UInt8(ascii: ":"))
        guard device.count == 2,
            UInt32(String(decoding: device[1], as: UTF8.self), radix: 16) == minor,
            let inode = UInt64(String(decoding: fields.removeFirst(), as: UTF8.self)), inode != 0
        else { return nil }
        self.inode = inode
        let letters = Array(permissions)
        use =
            letters.count == 4 && letters[1] == UInt8(ascii: "w")
                && letters[3] == UInt8(ascii: "s") ? .mappedForWriting : .mapped
    }

    /// Whether the fourth field begins with "00:" and the inode after it is not zero. Such a file
    /// is on a device without a driver, as every FUSE mount is.
    private static func isOfAnonymousDevice(_ line: UnsafeRawBufferPointer) -> Bool {
        guard let start = line.baseAddress else { return false }
        var at = start
        let end = start + line.count
        for _ in 0..<3 {
            guard let space = memchr(at, Int32(UInt8(ascii: " ")), end - at) else { return false }
            at = UnsafeRawPointer(space) + 1
        }
        guard end - at > 6, memcmp(at, "00:", 3) == 0,
            let space = memchr(at, Int32(UInt8(ascii: " ")), end - at)
        else { return false }
        let inode = UnsafeRawPointer(space) + 1
        return inode < end && inode.load(as: UInt8.self) != UInt8(ascii: "0")
    }
}

/// The start of a process, proc_pid_stat(5).
struct ProcessStart: Equatable {
    /// The time since boot.
    var began: Duration
    /// The kernel's flag `PF_FORKNOEXEC` (include/linux/sched.h): the process has run no program of
    /// its own.
    var isForked: Bool

    /// Nil where field 9 (flags) or 22 (start, in clock ticks) is missing. The name, field 2, is in
    /// parentheses and may contain any characters.
    init?(parsing text: [UInt8]) {
        guard let end = text.lastIndex(of: UInt8(ascii: ")")) else { return nil }
        let fields = text[(end + 1)...].split(separator: UInt8(ascii: " "))
        guard fields.count > 19, let flags = UInt32(String(decoding: fields[6], as: UTF8.self)),
            let ticks = UInt64(String(decoding: fields[19], as: UTF8.self)),
            let perSecond = UInt64(exactly: sysconf(Int32(_SC_CLK_TCK))), perSecond > 0
        else { return nil }
        began =
            .seconds(Int64(clamping: ticks / perSecond))
            + .milliseconds(Int64(ticks % perSecond * 1000 / perSecond))
        isForked = flags & 0x40 != 0
    }
}

/// The directory of one process in /proc. No file of the process is opened or asked for attributes.
/// Links are read as text alone, which the kernel makes from names that it knows (d_path).
struct ProcessDirectory {
    let pid: Int32
    private var path: String { "/proc/\(pid)" }

    /// All processes, unordered.
    static func all() -> [ProcessDirectory] {
        (names(in: "/proc") ?? []).compactMap { Int32($0).map(ProcessDirectory.init) }
    }

    /// The numbers of its descriptors; empty for a process that has ended, nil where they may not
    /// be read.
    func descriptors() -> [String]? {
        if let numbers = ProcessDirectory.names(in: path + "/fd") { return numbers }
        return errno == EACCES || errno == EPERM ? nil : []
    }

    func descriptor(_ number: String) -> DescriptorInformation? {
        ProcessDirectory.contents(of: "\(path)/fdinfo/\(number)")
            .flatMap(DescriptorInformation.init(parsing:))
    }

    /// The path of a descriptor's file.
    func target(ofDescriptor number: String) -> String? { link("fd/\(number)") }

    /// The text of `cwd`, `root` or `ns/mnt`.
    func link(_ name: String) -> String? {
        withUnsafeTemporaryAllocation(byteCount: 4096, alignment: 1) { buffer in
            guard
                let count = try? Syscall.readlinkat(
                    AT_FDCWD, "\(path)/\(name)", buffer.baseAddress!, buffer.count)
            else { return nil }
            return String(decoding: buffer[0..<count], as: UTF8.self)
        }
    }

    /// How long a search waits for a child between fork(2) and execve(2). A process that goes on as
    /// a fork is soon older.
    static let newFor = Duration.seconds(1)

    /// Whether it was forked recently and has not run a program of its own. Then it has its
    /// parent's files, including those that close with a new program (`O_CLOEXEC`). False where it
    /// has ended.
    var isNewFork: Bool {
        guard let start, start.isForked else { return false }
        return SystemClock.sinceBoot() - start.began < ProcessDirectory.newFor
    }

    /// Whether it has ended; true for a zombie, too.
    var hasEnded: Bool { link("ns/mnt") == nil }

    private var start: ProcessStart? {
        ProcessDirectory.contents(of: path + "/stat").flatMap(ProcessStart.init(parsing:))
    }

    func mounts() -> MountTable? { try? MountTable(path: path + "/mountinfo") }

    /// The files on a device that it has mapped; nil where they may not be read. Waits for the lock
    /// of the process's address space, which one of its threads may hold for long. `isWanted` is
    /// asked at times.
    func mappings(onDeviceMinor minor: UInt32, isWanted: () -> Bool) -> Set<MappingInformation>? {
        guard let file = try? OwnedDescriptor(opening: path + "/maps", O_RDONLY) else { return nil }
        var found: Set<MappingInformation> = []
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 64 << 10, alignment: 16)
        defer { buffer.deallocate() }
        var kept = 0
        while isWanted() {
            let count =
                (try? Syscall.read(
                    file.rawValue, buffer.baseAddress! + kept, buffer.count - kept)) ?? 0
            if count == 0 { break }
            var start = 0
            let end = kept + count
            while start < end,
                let newline = memchr(
                    buffer.baseAddress! + start, Int32(UInt8(ascii: "\n")), end - start)
            {
                let length = newline - buffer.baseAddress! - start
                let line = UnsafeRawBufferPointer(
                    start: buffer.baseAddress! + start, count: length)
                if let mapping = MappingInformation(parsing: line, deviceMinor: minor) {
                    found.insert(mapping)
                }
                start += length + 1
            }
            // Move the incomplete line to the front. No line fills the buffer: a path has at most
            // 4,096 bytes.
            kept = end - start
            if kept == buffer.count { break }
            if kept > 0 { memmove(buffer.baseAddress!, buffer.baseAddress! + start, kept) }
        }
        return found
    }

    private static func contents(of path: String) -> [UInt8]? {
        guard let file = try? OwnedDescriptor(opening: path, O_RDONLY) else { return nil }
        return withUnsafeTemporaryAllocation(byteCount: 1024, alignment: 16) { buffer in
            // Only the first lines are needed.
            let count = try? Syscall.read(file.rawValue, buffer.baseAddress!, buffer.count)
            return count.map { Array(buffer[0..<$0]) }
        }
    }

    private static func names(in path: String) -> [String]? {
        guard let directory = opendir(path) else { return nil }
        defer { closedir(directory) }
        var names: [String] = []
        while let entry = readdir(directory) {
            let name = withUnsafeBytes(of: &entry.pointee.d_name) {
                String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self)
            }
            if name.first?.isNumber == true { names.append(name) }
        }
        return names
    }
}
