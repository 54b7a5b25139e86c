import Foundation
import Testing

extension MountSuite {
    /// A daemon that gets no more memory, threads or descriptors while programs work.
    @Suite(.enabled(if: geteuid() == 0)) struct ScarceMemoryTests {
        /// Sets a soft limit of the daemon by prlimit(1), which its own user may do.
        private func limit(_ daemon: pid_t, _ option: String) throws {
            let done = try Child.run(
                User.ordinaryUser.prefix + ["prlimit", "--pid", "\(daemon)", option + ":"],
                environment: TestEnvironment.shared.variables)
            try #require(done.succeeded, "\(done.everything)")
        }

        /// The present soft limit, in the form that `limit` takes.
        private func softLimit(_ daemon: pid_t, _ name: String) throws -> String {
            let done = try Child.run(
                User.ordinaryUser.prefix + [
                    "prlimit", "--pid", "\(daemon)", name, "--output=SOFT", "--noheadings", "--raw",
                ], environment: TestEnvironment.shared.variables)
            try #require(done.succeeded, "\(done.everything)")
            return name + "=" + done.output.filter { !$0.isWhitespace }
        }

        /// Runs `ward` with the mount point after the words of the subcommand.
        private func run(_ command: [String], _ volume: MountedVolume) throws -> Finished {
            let words = command.prefix { !$0.hasPrefix("-") }
            let rest = command.dropFirst(words.count).map {
                $0 == "PASSCODE" ? volume.passcodeFile : $0
            }
            return try Child.run(
                volume.user.prefix + [TestEnvironment.shared.ward] + words + [volume.mountPoint]
                    + rest, environment: volume.environment, seconds: 30)
        }

        private func addressSpaceBytes(_ process: pid_t) throws -> Int {
            let status = TestEnvironment.contents(ofKernelFile: "/proc/\(process)/status")
            let line = try #require(status.split(separator: "\n").first { $0.hasPrefix("VmSize:") })
            return try #require(Int(line.filter(\.isNumber))) * 1024
        }

        /// The sign that a limit was reached.
        enum Sign: Sendable {
            /// The daemon ended, or a program got `ENOMEM`.
            case endOrError
            /// A program got this error.
            case error(String)
            /// A command that needs it was refused with this message; the daemon goes on.
            case refusal([String], saying: String)
        }

        struct Limit: CustomTestStringConvertible, Sendable {
            /// As prlimit(1) takes it; +BYTES: added to the present value.
            var testDescription: String
            var passcodeCost: String
            var sign: Sign
            init(_ option: String, passcodeCost: String = "1024", _ sign: Sign) {
                testDescription = option
                self.passcodeCost = passcodeCost
                self.sign = sign
            }
        }

        @Test(
            "No more memory, threads or descriptors: errors, or an end; what was synced is there at the next mount, which is clean",
            .serialized,
            arguments: [
                Limit("--as=+0", .endOrError), Limit("--as=+1000000", .endOrError),
                // Stretching the passcode takes 64 MiB.
                Limit(
                    "--as=+20000000", passcodeCost: "65536",
                    .refusal(
                        ["unlock", "--passcode-file", "PASSCODE"],
                        saying: "can't stretch the passcode: Cannot allocate memory")),
                Limit(
                    "--nproc=1",
                    .refusal(["backup", "run", "--", "true"], saying: "no thread can be started")),
                Limit("--nofile=100", .error("ENFILE")),
            ])
        func whileProgramsWork(limited: Limit) throws {
            let option = limited.testDescription
            let environment = TestEnvironment.shared
            let volume = try MountedVolume(
                as: .ordinaryUser, manualClock: limited.passcodeCost == "1024",
                initArguments: ["--passcode-cost", limited.passcodeCost])
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
            if case .refusal(let command, let reason) = limited.sign {
                let refused = try run(command, volume)
                #expect(!refused.succeeded && !refused.timedOut, "\(option): no limit reached")
                #expect(refused.everything.contains(reason), "\(option): \(refused.everything)")
            }
            var allErrors: Set<String> = []
            var synced: [(name: String, size: Int)] = []
            for (program, output) in zip(programs, outputs) {
                #expect(program.wait(seconds: 120) != nil, "a program hangs")
                let file = FileHandle(fileDescriptor: output.reading, closeOnDealloc: true)
                let lines = String(decoding: file.readDataToEndOfFile(), as: UTF8.self)
                    .split(separator: "\n", omittingEmptySubsequences: false)
                try #require(lines.count >= 2, "\(lines)")
                for word in lines[0].split(separator: " ") {
                    let parts = word.split(separator: ":")
                    synced.append((String(parts[0]), Int(parts[1]) ?? -1))
                }
                // EPERM comes while it was locked.
                let errors = Set(lines[1].split(separator: " ").map(String.init))
                // ECANCELED comes over io_uring, for a request that was on its way to a daemon that
                // died.
                let expected: Set = [
                    "ECANCELED", "ENOMEM", "ENOTCONN", "ECONNABORTED", "EPERM", "ENFILE", "EAGAIN",
                    "EIO",
                ]
                #expect(errors.isSubset(of: expected), "\(option): \(errors)")
                allErrors.formUnion(errors)
            }
            // Programs may see the daemon's end while it is still ending.
            if allErrors.contains("ENOTCONN") { try MountedVolume.waitForEnd(of: daemon) }
            let isRunning = MountedVolume.isRunning(daemon)
            switch limited.sign {
            case .endOrError:
                #expect(!isRunning || allErrors.contains("ENOMEM"), "\(option): no limit reached")
            case .error(let name): #expect(allErrors.contains(name), "\(option): \(allErrors)")
            case .refusal: #expect(isRunning, "\(option)")
            }
            if isRunning {
                try limit(daemon, before)
                if case .refusal(let command, _) = limited.sign {
                    let done = try run(command, volume)
                    #expect(done.succeeded, "\(option), limit gone: \(done.everything)")
                }
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
