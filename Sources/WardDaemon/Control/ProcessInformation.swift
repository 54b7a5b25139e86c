import Glibc
import Synchronization
import WardSystem

/// A process as `/proc/PID/status` shows it, proc_pid_status(5). Reading that takes no lock of the
/// process's memory, so it never waits.
public struct ProcessInformation: Equatable, Sendable {
    /// The process number; where a thread was asked about, that of its process.
    public var pid: Int
    public var program: String
    /// The real user.
    public var uid: Int

    /// Nil where the process is gone.
    public static func read(_ thread: Int) -> ProcessInformation? {
        guard let text = contents(of: "/proc/\(thread)/status"),
            var found = ProcessInformation(parsing: text)
        else { return nil }
        // A thread may have a name of its own.
        if found.pid != thread, let name = contents(of: "/proc/\(found.pid)/comm") {
            found.program = String(
                decoding: name.prefix { $0 != UInt8(ascii: "\n") }, as: UTF8.self)
        }
        return found
    }

    private static func contents(of path: String) -> [UInt8]? {
        guard let file = try? OwnedDescriptor(opening: path, O_RDONLY) else { return nil }
        return try? withUnsafeTemporaryAllocation(byteCount: 4096, alignment: 16) { buffer in
            let count = try Syscall.read(file.rawValue, buffer.baseAddress!, buffer.count)
            return Array(buffer[0..<count])
        }
    }

    /// Nil where the line Name, Tgid or Uid is missing.
    init?(parsing text: [UInt8]) {
        var program: String?
        var pid: Int?
        var uid: Int?
        for line in text.split(separator: UInt8(ascii: "\n")) {
            // The kernel escapes a newline in a name, so it ends no line.
            let fields = String(decoding: line, as: UTF8.self).split(separator: "\t")
            guard fields.count > 1 else { continue }
            switch fields[0] {
            case "Name:": program = program ?? fields.dropFirst().joined(separator: "\t")
            case "Tgid:": pid = Int(fields[1])
            case "Uid:": uid = Int(fields[1])
            default: break
            }
        }
        guard let program, let pid, let uid else { return nil }
        self.program = program
        self.pid = pid
        self.uid = uid
    }
}

/// Finds the program of a thread that was refused.
///
/// Called on the worker of the request, while the program waits for the answer: later it may be
/// gone. That costs some microseconds once a second for each refused thread.
///
/// Concurrency: any thread; the mutex is held for a look-up, not while `/proc` is read.
final class ProgramNames: Sendable {
    /// After this time a thread may run another program.
    private static let lifetime = Duration.seconds(1)
    private static let capacity = 256

    private struct Known {
        var process: ProcessInformation
        var at: Duration
    }

    private let known = Mutex<[Int: Known]>([:])

    /// Nil where the kernel does not name the caller (0), or the caller is gone.
    func process(of thread: Int, now: Duration) -> ProcessInformation? {
        guard thread > 0 else { return nil }
        let remembered = known.withLock { known in
            known[thread].flatMap { now - $0.at < ProgramNames.lifetime ? $0.process : nil }
        }
        if let remembered { return remembered }
        guard let process = ProcessInformation.read(thread) else { return nil }
        known.withLock { known in
            if known.count >= ProgramNames.capacity { known = [:] }
            known[thread] = Known(process: process, at: now)
        }
        return process
    }
}
