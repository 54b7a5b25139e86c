import CWardLinux
import Glibc
import WardSystem

/// Makes core dumps and searches them.
enum CoreDumps {
    /// Whether an abort writes a core into the working directory: no pipe or path in
    /// `core_pattern`, and a limit that may be raised. Where it does not, tests look at the
    /// mapping's flags (VmFlags `dd`).
    static var arePossible: Bool {
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(4) /* RLIMIT_CORE */, &limit) == 0,
            limit.rlim_max > 1 << 30,
            let file = try? OwnedDescriptor(opening: "/proc/sys/kernel/core_pattern", O_RDONLY)
        else { return false }
        var first: UInt8 = 0
        let count = (try? Syscall.read(file.rawValue, &first, 1)) ?? 0
        return count == 1 && first != UInt8(ascii: "|") && first != UInt8(ascii: "/")
    }

    static func makeDirectory() -> String {
        var template = Array("/tmp/ward-core-XXXXXX".utf8CString)
        return String(cString: mkdtemp(&template)!)
    }

    /// Runs in a forked child and never returns. Writes 32 secret and 32 marker bytes to `pipe`,
    /// then aborts.
    static func abortWithSecret(in directory: String, tellingTo pipe: Int32) -> Never {
        var limit = rlimit(rlim_cur: rlim_t(1) << 40, rlim_max: rlim_t(1) << 40)
        if getrlimit(__rlimit_resource_t(4), &limit) == 0 { limit.rlim_cur = limit.rlim_max }
        setrlimit(__rlimit_resource_t(4), &limit)
        ward_prctl(4 /* PR_SET_DUMPABLE */, 1)
        guard chdir(directory) == 0, let secret = try? SecretBytes(random: 32) else { _exit(2) }
        secret.withUnsafeBytes { _ = write(pipe, $0.baseAddress!, 32) }
        let marker = malloc(32)!
        SystemRandom.fill(UnsafeMutableRawBufferPointer(start: marker, count: 32))
        _ = write(pipe, marker, 32)
        signal(SIGABRT, SIG_DFL)
        abort()
    }

    static func find(in directory: String) -> String? {
        names(in: directory).first { $0.hasPrefix("core") }.map { directory + "/" + $0 }
    }

    static func remove(_ directory: String) {
        for name in names(in: directory) { unlink(directory + "/" + name) }
        rmdir(directory)
    }

    private static func names(in directory: String) -> [String] {
        guard let stream = opendir(directory) else { return [] }
        defer { closedir(stream) }
        var result: [String] = []
        while let entry = readdir(stream) {
            let name = withUnsafeBytes(of: &entry.pointee.d_name) {
                String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self)
            }
            if name != "." && name != ".." { result.append(name) }
        }
        return result
    }

    /// memmem(3) over the mapped file.
    static func contains(_ path: String, _ needle: [UInt8]) throws -> Bool {
        let file = try OwnedDescriptor(opening: path, O_RDONLY)
        let count = Int(try Syscall.fstat(file.rawValue).st_size)
        guard let memory = mmap(nil, count, PROT_READ, MAP_PRIVATE, file.rawValue, 0),
            memory != MAP_FAILED
        else { throw Errno.noMemory }
        defer { munmap(memory, count) }
        let bytes = UnsafeRawBufferPointer(start: memory, count: count)
        var at = 0
        while at + needle.count <= count,
            let hit = memchr(
                bytes.baseAddress! + at, Int32(needle[0]), count - at - needle.count + 1)
        {
            at = UnsafeRawPointer(hit) - bytes.baseAddress!
            if memcmp(hit, needle, needle.count) == 0 { return true }
            at += 1
        }
        return false
    }
}
