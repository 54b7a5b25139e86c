import Foundation
import Testing

extension MountSuite {
    /// No core dump, swap, log line or output holds a secret.
    @Suite struct HardeningTests {
        @Test(
            "Secrets and buffers are locked, and left out of core dumps",
            .enabled(if: ProcessMemory.mayBeRead, "only root reads the mappings of the daemon"),
            arguments: User.available)
        func mappings(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            #expect(probe.writeFile("f", String(repeating: "content ", count: 100_000)) == .ok)
            #expect(probe.call("digest", "f").succeeded)
            let daemon = try #require(volume.daemonProcess())
            let regions = try ProcessMemory(process: daemon).regions()
            let secret = regions.filter(\.isSecret)
            #expect(!secret.isEmpty)
            for region in secret {
                #expect(region.lockedBytes == region.anonymousBytes && region.swappedBytes == 0)
            }
            // Each worker has two buffers of at least a megabyte; adjacent ones may be one mapping.
            let buffers = regions.filter {
                $0.flags.contains("dd") && !$0.isSecret && $0.anonymousBytes > 0
            }
            #expect(!buffers.isEmpty)
            let limits = try text("/proc/\(daemon)/limits")
            #expect(
                limits.split(separator: "\n").contains {
                    $0.hasPrefix("Max core file size")
                        && $0.split(separator: " ").suffix(3).prefix(2) == ["0", "0"]
                }, "\(limits)")
            // Root in the machine's first namespace may lock any number of pages, and does.
            if user == .root { #expect(buffers.allSatisfy { $0.flags.contains("lo") }) }
        }

        @Test("Its own user reads neither memory nor environment of the daemon")
        func notDumpable() throws {
            let volume = try MountedVolume(as: .ordinaryUser)
            let daemon = try #require(volume.daemonProcess())
            for name in ["mem", "environ", "maps", "pagemap"] {
                let read = try Child.run(
                    User.ordinaryUser.prefix + ["head", "-c", "1", "/proc/\(daemon)/\(name)"],
                    environment: volume.environment)
                #expect(!read.succeeded && read.output.isEmpty, "\(name): \(read.everything)")
            }
        }

        @Test("A command that asks for a passcode leaves no dump, and no debugger in")
        func command() throws {
            let volume = try MountedVolume(as: .ordinaryUser)
            let pipe = try Child.pipe()
            let child = try Child(
                User.ordinaryUser.prefix + [
                    TestEnvironment.shared.ward, "unlock", volume.mountPoint, "--passcode-fd", "0",
                ], environment: volume.environment, input: pipe.reading)
            close(pipe.reading)
            let isHardened = comesTrue {
                let limit = try? text("/proc/\(child.process)/limits").split(separator: "\n")
                    .first { $0.hasPrefix("Max core file size") }
                return limit?.split(separator: " ").suffix(3).prefix(2) == ["0", "0"]
            }
            #expect(isHardened, "the command may leave no core dump")
            let read = try Child.run(
                User.ordinaryUser.prefix + ["head", "-c", "1", "/proc/\(child.process)/maps"],
                environment: volume.environment)
            #expect(!read.succeeded && read.output.isEmpty, "\(read.everything)")
            let line = Array((MountedVolume.passcode + "\n").utf8)
            #expect(write(pipe.writing, line, line.count) == line.count)
            close(pipe.writing)
            #expect(child.wait(seconds: 60) == 0)
        }

        @Test(
            "A daemon that crashes leaves no core dump and says nothing", arguments: User.available)
        func crash(user: User) throws {
            let volume = try MountedVolume(as: user)
            let daemon = try #require(volume.daemonProcess())
            let log = try volume.deviceDirectory() + "/ward.log"
            // Another thread writes the log, and an unlock does not wait for it: wait for its last
            // line.
            var logged = ""
            let isLogged = try comesTrue(within: 30) {
                logged = try text(log)
                return logged.contains("didBecomeAvailable") && logged.hasSuffix("\n")
            }
            try #require(isLogged, "the log has no last line of the unlock: \(logged)")
            let before = cores(volume)
            #expect(Glibc.kill(daemon, SIGSEGV) == 0)
            try MountedVolume.waitForEnd(of: daemon)
            #expect(cores(volume) == before)
            #expect(try text(log) == logged, "no backtrace, no registers")
            volume.detach()
        }

        /// The directories where a core_pattern without a directory puts cores: the daemon's
        /// working directory, and others.
        private func cores(_ volume: MountedVolume) -> Set<String> {
            var found: Set<String> = []
            for directory in ["/", "/tmp", volume.directory, volume.volume] {
                let names = (try? FileManager.default.contentsOfDirectory(atPath: directory)) ?? []
                for name in names where name.hasPrefix("core") {
                    found.insert(directory + "/" + name)
                }
            }
            return found
        }

        private func text(_ path: String) throws -> String {
            String(decoding: try ProcessMemory.File(path).contents(), as: UTF8.self)
        }
    }
}
