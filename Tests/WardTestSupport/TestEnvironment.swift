import Foundation
import Synchronization

/// The parts that every test on a mount shares: the programs it runs, one temporary directory for
/// all, and the final clean-up.
package final class TestEnvironment: Sendable {
    package static let shared = TestEnvironment()

    /// Where all temporary files of this run are; readable by all users.
    package let base: String
    /// The program under test, copied to where an ordinary user may run it.
    package let ward: String
    package let python: String
    /// Set (`WARD_TEST_PLAIN=1`) to run what does not need ward on a plain directory instead: tests
    /// the tests.
    package let isPlain: Bool
    /// The environment of every child, but for the directories of its volume.
    package let variables: [String: String]
    private let janitor: Janitor?
    /// Processes that serve all tests of the run, and end with it.
    private let keptProcesses = Mutex<Set<pid_t>>([])
    /// How the names of directories begin that are of the whole run, and no test's.
    package static let sharedPrefix = "shared-"

    /// How many times as long as usual the tests wait for a program (`WARD_TEST_PATIENCE`):
    /// sanitizers make them slow.
    package static let patience =
        ProcessInfo.processInfo.environment["WARD_TEST_PATIENCE"].flatMap(Double.init) ?? 1
    /// The programs keep what they free (scripts/sanitize): nothing can be said of their memory.
    package static let isSanitized =
        ["ASAN_OPTIONS", "TSAN_OPTIONS"].contains { ProcessInfo.processInfo.environment[$0] != nil }

    private init() {
        let environment = ProcessInfo.processInfo.environment
        var template = Array("/tmp/ward-tests-XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { fatalError("can't make a directory below /tmp") }
        base = template.withUnsafeBufferPointer { String(cString: $0.baseAddress!) }
        chmod(base, 0o755)
        isPlain = environment["WARD_TEST_PLAIN"] == "1"
        python =
            ["/usr/bin/python3", "/usr/local/bin/python3"].first {
                access($0, X_OK) == 0
            } ?? "python3"
        var variables = [
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LC_ALL": "C.UTF-8", "NO_COLOR": "1", "TZ": "UTC", "HOME": base,
            "PYTHONDONTWRITEBYTECODE": "1",
        ]
        // The wishes of scripts/sanitize and scripts/over-io-uring hold for the programs, too.
        for name in ["ASAN_OPTIONS", "TSAN_OPTIONS", "WARD_TRANSPORT"] {
            variables[name] = environment[name]
        }
        self.variables = variables
        let manager = FileManager.default
        for name in (try? manager.contentsOfDirectory(atPath: Self.scripts)) ?? [] {
            try? manager.copyItem(atPath: Self.scripts + "/" + name, toPath: base + "/" + name)
        }
        ward = base + "/ward"
        if let built = Self.builtProgram {
            try? Child.copyProgram(built, to: ward)
        }
        janitor = try? Janitor(of: base)
        guard janitor != nil else { fatalError("can't start sh, which is to clean up") }
        atexit { TestEnvironment.shared.janitor?.cleanUp() }
    }

    /// The path of one of the scripts beside this file, as any user can read it.
    package func script(_ name: String) -> String { base + "/" + name }

    /// A new directory below the base.
    package func makeDirectory(_ name: String) throws -> String {
        var template = Array("\(base)/\(name)-XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else {
            throw SupportError("can't make a directory in \(base)")
        }
        let path = template.withUnsafeBufferPointer { String(cString: $0.baseAddress!) }
        chmod(path, 0o755)
        return path
    }

    /// Throws where no mount can be served: a machine without FUSE can't pass, it has to be given
    /// FUSE.
    package func requireMounts() throws {
        guard !isPlain else { return }
        guard access("/dev/fuse", F_OK) == 0 else {
            throw SupportError(
                "there is no /dev/fuse here: `modprobe fuse`, or give the container the device")
        }
        guard access(ward, X_OK) == 0 else {
            throw SupportError(
                "no program `ward` beside the tests: `swift build`, or set WARD_BINARY")
        }
    }

    /// Takes a process for one that serves all tests of the run.
    package func keep(_ process: pid_t) { keptProcesses.withLock { _ = $0.insert(process) } }

    private func isKept(_ process: pid_t) -> Bool {
        keptProcesses.withLock { $0.contains(process) }
    }

    /// The things that this run has left on the machine: mounts, processes (but for those of
    /// running tests), files.
    package func leaks() -> [String] {
        mounts().map { "mount \($0)" } + processes().map { "process \($0)" } + files()
    }

    /// To its end: Foundation takes a short read, which files of the kernel answer with, for it.
    /// Bytes that are not UTF-8 may be the name of another user's mount.
    package static func contents(ofKernelFile path: String) -> String {
        guard let file = fopen(path, "r") else { return "" }
        defer { fclose(file) }
        var bytes: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 1 << 16)
        while case let count = fread(&chunk, 1, chunk.count, file), count > 0 {
            bytes += chunk.prefix(count)
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    /// Mount points below the base, the deepest first.
    package func mounts() -> [String] {
        let table = Self.contents(ofKernelFile: "/proc/self/mountinfo")
        return table.split(separator: "\n").compactMap { line in
            let fields = line.split(separator: " ")
            return fields.count > 4 && fields[4].hasPrefix(base) ? String(fields[4]) : nil
        }.reversed()
    }

    /// Processes that name the base in their command line or run the program copied there: daemons,
    /// watchdogs, probes.
    package func processes() -> [String] {
        let manager = FileManager.default
        let entries = (try? manager.contentsOfDirectory(atPath: "/proc")) ?? []
        return entries.compactMap { entry in
            guard let process = pid_t(entry), process != getpid(), !isKept(process),
                let raw = manager.contents(atPath: "/proc/\(entry)/cmdline"), !raw.isEmpty
            else { return nil }
            let line = String(decoding: raw, as: UTF8.self).replacingOccurrences(
                of: "\0", with: " ")
            let program = try? manager.destinationOfSymbolicLink(atPath: "/proc/\(entry)/exe")
            let isOurs = line.contains(base) || program?.hasPrefix(base) == true
            return isOurs ? "\(entry) \(line)" : nil
        }
    }

    /// Those of them that `parent` started.
    package func children(of parent: pid_t) -> [pid_t] {
        processes().compactMap { pid_t($0.prefix { $0.isNumber }) }.filter { process in
            let stat = try? String(contentsOfFile: "/proc/\(process)/stat", encoding: .utf8)
            let fields = stat?.split(separator: ")").last?.split(separator: " ") ?? []
            return fields.count > 1 && pid_t(fields[1]) == parent
        }
    }

    private func files() -> [String] {
        let manager = FileManager.default
        let kept = Set((try? manager.contentsOfDirectory(atPath: Self.scripts)) ?? []).union([
            "ward"
        ])
        let found = (try? manager.contentsOfDirectory(atPath: base)) ?? []
        return found.filter { !kept.contains($0) && !$0.hasPrefix(Self.sharedPrefix) }.map {
            "file \(base)/\($0)"
        }
    }

    private static let scripts =
        String(#filePath.dropLast("TestEnvironment.swift".count)) + "../WardMountTests/Scripts"

    /// `WARD_BINARY`, else `ward` beside the test bundle.
    package static var builtProgram: String? {
        if let named = ProcessInfo.processInfo.environment["WARD_BINARY"] { return named }
        let beside = Bundle.allBundles.map(\.bundlePath) + CommandLine.arguments
        return beside.map { ($0 as NSString).deletingLastPathComponent + "/ward" }.first {
            access($0, X_OK) == 0
        }
    }
}
