import Foundation
import Testing

extension MountSuite {
    /// A daemon that gets no more memory, or no more threads, while programs work.
    @Suite(.enabled(if: geteuid() == 0)) struct ScarceMemoryTests {
        /// The daemon's soft limit from now on: prlimit(1), which its own user may.
        private func limit(_ daemon: pid_t, _ option: String) throws {
            let done = try Child.run(
                User.ordinaryUser.prefix + ["prlimit", "--pid", "\(daemon)", option + ":"],
                environment: TestEnvironment.shared.variables)
            try #require(done.succeeded, "\(done.everything)")
        }

        /// What it is now, as `limit` takes it.
        private func softLimit(_ daemon: pid_t, _ name: String) throws -> String {
            let done = try Child.run(
                User.ordinaryUser.prefix + [
                    "prlimit", "--pid", "\(daemon)", name, "--output=SOFT", "--noheadings", "--raw",
                ], environment: TestEnvironment.shared.variables)
            try #require(done.succeeded, "\(done.everything)")
            return name + "=" + done.output.filter { !$0.isWhitespace }
        }

        private func addressSpaceBytes(_ process: pid_t) throws -> Int {
            let status = TestEnvironment.contents(ofKernelFile: "/proc/\(process)/status")
            let line = try #require(status.split(separator: "\n").first { $0.hasPrefix("VmSize:") })
            return try #require(Int(line.filter(\.isNumber))) * 1024
        }

        @Test(
            "No more memory, or threads: errors, or an end; what was synced is there at the next mount, which is clean",
            .serialized,
            arguments: ["--as=+0", "--as=+20000000", "--nproc=1"])
        func whileProgramsWork(option: String) throws {
            let environment = TestEnvironment.shared
            let volume = try MountedVolume(as: .ordinaryUser)
            let daemon = try #require(volume.daemonProcess())
            var chosen = option
            if let extra = option.split(separator: "+").last, option.contains("+") {
                chosen = "--as=\(try addressSpaceBytes(daemon) + (Int(extra) ?? 0))"
            }
            let before = try softLimit(daemon, String(option.prefix { $0 != "=" }))
            try limit(daemon, chosen)
            let outputs = try (0..<3).map { _ in try Child.pipe() }
            let programs = try outputs.map { output in
                try Child(
                    volume.user.prefix + [
                        environment.python, environment.script("scarce.py"), volume.mountPoint,
                        "1",
                    ], environment: volume.environment, output: output.writing)
            }
            for output in outputs { close(output.writing) }
            let status = try volume.ward("status", volume.mountPoint, seconds: 20)
            #expect(!status.timedOut)
            _ = try volume.ward("lock", volume.mountPoint, "--now", seconds: 20)
            _ = try volume.ward(
                "unlock", volume.mountPoint, "--passcode-file", volume.passcodeFile, seconds: 20)
            var synced: [(name: String, size: Int)] = []
            for (program, output) in zip(programs, outputs) {
                #expect(program.wait(seconds: 40) != nil, "a program hangs")
                let file = FileHandle(fileDescriptor: output.reading, closeOnDealloc: true)
                let lines = String(decoding: file.readDataToEndOfFile(), as: UTF8.self)
                    .split(separator: "\n", omittingEmptySubsequences: false)
                try #require(lines.count >= 2, "\(lines)")
                for word in lines[0].split(separator: " ") {
                    let parts = word.split(separator: ":")
                    synced.append((String(parts[0]), Int(parts[1]) ?? -1))
                }
                // EPERM while it was locked.
                let errors = Set(lines[1].split(separator: " ").map(String.init))
                let expected: Set = [
                    "ENOMEM", "ENOTCONN", "ECONNABORTED", "EPERM", "EMFILE", "EAGAIN", "EIO",
                ]
                #expect(errors.isSubset(of: expected), "\(option): \(errors)")
            }
            if MountedVolume.isRunning(daemon) {
                try limit(daemon, before)
                let unmounted = try volume.ward("unmount", volume.mountPoint, seconds: 60)
                #expect(unmounted.succeeded, "\(option): \(unmounted.everything)")
            }
            try volume.mountWhenFree()
            try volume.unlock()
            try volume.shell(
                """
                \(environment.python) - "$MNT" \
                    \(synced.map { "\($0.name):\($0.size)" }.joined(separator: " ")) <<'PYTHON'
                import sys
                for word in sys.argv[2:]:
                    name, size = word.split(":")
                    data = open(f"{sys.argv[1]}/{name}", "rb").read()
                    assert data == (name.encode() * 100_000)[: int(size)], (name, size, len(data))
                PYTHON
                """)
            let damage = try ControlEvent.latest(of: volume).filter {
                $0.kind == "integrityFailure"
            }
            #expect(damage.isEmpty, "\(option): \(damage)")
        }
    }
}
