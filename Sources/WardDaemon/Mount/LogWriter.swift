import CWardLinux
import Glibc
import Synchronization
import WardControl
import WardSystem

/// The daemon's log: to a file, standard error or the systemd journal.
///
/// Concurrency: any thread, without waiting for the disk. A thread of its own writes the queued
/// lines; lines that do not fit are counted.
final class LogWriter: Sendable {
    /// The numbers of syslog(3).
    enum Level: Int, Sendable {
        case error = 3
        case warning = 4
        case notice = 5
        case info = 6
    }

    /// The most lines that wait to be written.
    static let maximumQueuedLines = 1000
    private static let journalPath = "/run/systemd/journal/socket"

    private enum Destination: Sendable {
        case descriptor(Int32)
        case journal(Int32)
    }

    private struct State {
        var lines: [(level: Level, text: String)] = []
        var droppedLines = 0
        var isStopping = false
        var thread: SystemThread?
    }

    private let state = Mutex(State())
    private let wake: WakeWord
    private let done = WakeWord()
    private let destination: Destination

    /// Throws exit code 73 where the log file can't be opened.
    init(_ options: MountOptions, fallbackPath: String) throws(DaemonError) {
        wake = WakeWord()
        if let path = options.logPath {
            destination = .descriptor(try LogWriter.open(path))
        } else if options.logsToStandardError {
            destination = .descriptor(STDERR_FILENO)
        } else if let journal = LogWriter.connectJournal() {
            destination = .journal(journal)
        } else {
            destination = .descriptor(try LogWriter.open(fallbackPath))
        }
        // The thread keeps this object: it may outlive all other owners (`stop`).
        let thread = SystemThread.start("ward-log") { [self] in run() }
        state.withLock { $0.thread = thread }
    }

    deinit {
        switch destination {
        case .descriptor(STDERR_FILENO): break
        case .descriptor(let descriptor), .journal(let descriptor): Syscall.close(descriptor)
        }
    }

    private static func open(_ path: String) throws(DaemonError) -> Int32 {
        do throws(Errno) {
            return try Syscall.open(path, O_WRONLY | O_CREAT | O_APPEND, mode: 0o600)
        } catch {
            throw DaemonError(
                "open the log", path, "\(error)", hint: "name another file with --log",
                status: .cannotCreate)
        }
    }

    private static func connectJournal() -> Int32? {
        guard access(journalPath, W_OK) == 0 else { return nil }
        let socket = Glibc.socket(
            AF_UNIX, Int32(SOCK_DGRAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        guard socket >= 0 else { return nil }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: journalPath.utf8) }
        let connected = withUnsafeBytes(of: &address) {
            connect(
                socket, $0.baseAddress!.assumingMemoryBound(to: sockaddr.self),
                socklen_t(MemoryLayout<sockaddr_un>.size))
        }
        if connected == 0 { return socket }
        Syscall.close(socket)
        return nil
    }

    /// Queues one line. Control characters, which names of files may have, are shown as `?`.
    func write(_ level: Level, _ text: String) {
        let line = String(
            String.UnicodeScalarView(
                text.unicodeScalars.map { scalar in
                    switch scalar.value {
                    // Also C1, which terminals obey, and characters that end a line for some
                    // programs.
                    case 0..<0x20, 0x7F..<0xA0, 0x2028, 0x2029: "?"
                    default: scalar
                    }
                }))
        state.withLock { state in
            if state.lines.count >= LogWriter.maximumQueuedLines {
                state.droppedLines += 1
            } else {
                state.lines.append((level, line))
            }
        }
        wake.signal()
    }

    /// Writes the queued lines and ends. Waits at most `patience` for a pipe without a reader, or a
    /// disk that hangs: a daemon that never ends would prevent the next mount.
    func stop(patience: Duration = .seconds(2)) {
        let thread = state.withLock { state in
            state.isStopping = true
            return state.thread.take()
        }
        wake.signal()
        guard let thread else { return }
        if done.wait(timeout: patience) { thread.join() } else { thread.detach() }
    }

    private func run() {
        while true {
            wake.wait()
            let (lines, dropped, isStopping) = state.withLock { state in
                defer {
                    state.lines = []
                    state.droppedLines = 0
                }
                return (state.lines, state.droppedLines, state.isStopping)
            }
            for line in lines { put(line.level, line.text) }
            if dropped > 0 {
                put(.warning, "\(dropped) lines of the log were dropped: it is too slow")
            }
            if isStopping {
                done.signal()
                return
            }
        }
    }

    private func put(_ level: Level, _ text: String) {
        switch destination {
        case .descriptor(let descriptor):
            let bytes = Array("\(Timestamp.now()) \(level) \(text)\n".utf8)
            bytes.withUnsafeBytes { try? Syscall.writeAll(descriptor, $0.baseAddress!, $0.count) }
        case .journal(let socket):
            // https://systemd.io/JOURNAL_NATIVE_PROTOCOL
            let bytes = Array(
                "PRIORITY=\(level.rawValue)\nSYSLOG_IDENTIFIER=ward\nMESSAGE=\(text)\n".utf8)
            _ = send(socket, bytes, bytes.count, Int32(MSG_NOSIGNAL | MSG_DONTWAIT))
        }
    }
}
