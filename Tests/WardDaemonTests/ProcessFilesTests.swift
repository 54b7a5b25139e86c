import Glibc
import Testing
import WardControl

@testable import WardDaemon

/// The entries of /proc about other processes, read without trusting them.
@Suite struct ProcessFilesTests {
    private func mapping(_ line: String, minor: UInt32 = 0x2f) -> MappingInformation? {
        Array(line.utf8).withUnsafeBytes { MappingInformation(parsing: $0, deviceMinor: minor) }
    }

    @Test("proc_pid_maps(5): files of the mount alone, shared and writable told apart")
    func maps() {
        let inode: UInt64 = 1_234_567
        let head = "7f3c1a000000-7f3c1a021000"
        #expect(
            mapping("\(head) rw-s 00000000 00:2f 1234567    /mnt/a")
                == mapping("\(head) rw-s 00001000 00:2f 1234567    /mnt/a (deleted)"))
        #expect(mapping("\(head) rw-s 00000000 00:2f 1234567 /mnt/a")?.use == .mappedForWriting)
        #expect(mapping("\(head) rw-p 00000000 00:2f 1234567 /mnt/a")?.use == .mapped)
        #expect(mapping("\(head) r--s 00000000 00:2f 1234567 /mnt/a b")?.inode == inode)
        #expect(mapping("\(head) r--s 00000000 00:30 1234567 /mnt/a") == nil)
        #expect(mapping("\(head) r--s 00000000 08:2f 1234567 /mnt/a") == nil)
        #expect(mapping("\(head) rw-p 00000000 00:00 0 [heap]") == nil)
        #expect(mapping("\(head) rw-p 00000000 00:00 0", minor: 0) == nil)
        for damaged in ["", " ", "x", "a b c d", "a b c d e", "a b c 00: 1", "a b c :2f x"] {
            #expect(mapping(damaged) == nil)
        }
    }

    @Test("proc_pid_fdinfo(5)")
    func fdinfo() {
        func parse(_ text: String) -> DescriptorInformation? {
            DescriptorInformation(parsing: Array(text.utf8))
        }
        let info = parse("pos:\t0\nflags:\t0100002\nmnt_id:\t57\nino:\t42\nlock:\tx\n")
        #expect(info?.mountID == 57 && info?.inode == 42 && info?.use == .readWrite)
        #expect(parse("pos:\t0\nflags:\t0100001\nmnt_id:\t57\n")?.use == .write)
        #expect(parse("pos:\t0\nflags:\t0100001\nmnt_id:\t57\n")?.inode == nil)
        #expect(parse("flags:\t010000000\nmnt_id:\t57\nino:\t1\n")?.use == .path)
        #expect(parse("flags:\t0\nmnt_id:\t57\nino:\t1\n")?.use == .read)
        #expect(parse("flags:\t9\nmnt_id:\t57\n") == nil)
        #expect(parse("") == nil)
    }

    @Test("proc_pid_status(5): a name with anything in it")
    func status() {
        let text = "Name:\ta\\nTgid:\t7\nUmask:\t0022\nTgid:\t12\nPid:\t13\nUid:\t5\t6\t7\t8\n"
        let process = ProcessInformation(parsing: Array(text.utf8))
        #expect(process?.program == "a\\nTgid:\t7")
        #expect(process?.pid == 12 && process?.uid == 5)
        #expect(ProcessInformation(parsing: Array("Name:\tx\n".utf8)) == nil)
    }

    @Test("proc_pid_stat(5): a fork that runs no program of its own, and when it began")
    func start() throws {
        func parse(_ text: String) -> ProcessStart? { ProcessStart(parsing: Array(text.utf8)) }
        let rest = "0 0 0 0 0 0 0 0 20 0 1 0"
        let ticks = sysconf(Int32(_SC_CLK_TCK))
        let forked = parse("12 (a) S 1 (b) S 1 1 1 0 -1 4194368 \(rest) \(3 * ticks + ticks / 2) 0")
        #expect(forked?.isForked == true && forked?.began == .milliseconds(3500))
        #expect(parse("12 (a) S 1 1 1 0 -1 4194304 \(rest) 0 0\n")?.isForked == false)
        for damaged in ["", "12", "12 (a", "12 (a)", "12 (a) S 1 1 1 0 -1 4194304 \(rest)"] {
            #expect(parse(damaged) == nil)
        }
        #expect(parse("12 (a) S 1 1 1 0 -1 x \(rest) 0 0") == nil)
        #expect(parse("12 (a) S 1 1 1 0 -1 64 \(rest) 18446744073709551615 0") != nil)
        #expect(!ProcessDirectory(pid: .max).isNewFork && ProcessDirectory(pid: .max).hasEnded)
        #expect(!ProcessDirectory(pid: getpid()).isNewFork)
        #expect(!ProcessDirectory(pid: getpid()).hasEnded)
    }

    @Test("this very process")
    func own() throws {
        let process = try #require(ProcessInformation.read(Int(getpid())))
        #expect(process.pid == Int(getpid()) && process.uid == Int(getuid()))
        let names = ProgramNames()
        #expect(names.process(of: Int(getpid()), now: .zero) == process)
        #expect(names.process(of: 0, now: .zero) == nil)
        #expect(ProcessInformation.read(Int(Int32.max)) == nil)
        let directory = ProcessDirectory(pid: getpid())
        #expect(directory.descriptors()?.isEmpty == false)
        #expect(directory.mounts() != nil)
        #expect(directory.mappings(onDeviceMinor: 0xffff, isWanted: { true }) == [])
    }
}
