import Foundation
import Glibc
import Testing

extension MountSuite {
    /// The transport of requests: `ward mount --transport`.
    @Suite struct TransportTests {
        private static let isOffered =
            (try? String(
                contentsOfFile: "/sys/module/fuse/parameters/enable_uring", encoding: .utf8))
            == "Y\n"

        private func transport(_ volume: MountedVolume) throws -> String? {
            let done = try volume.ward("status", volume.mountPoint, "--json")
            let status = try JSONSerialization.jsonObject(with: Data(done.output.utf8))
            return (status as? [String: Any])?["transport"] as? String
        }

        @Test("the device can always be asked for", arguments: User.usual)
        func device(user: User) throws {
            let volume = try MountedVolume(as: user, mountArguments: ["--transport", "device"])
            #expect(try transport(volume) == "device")
        }

        /// For each of the daemon's workers: whether it gives way to programs (`SCHED_IDLE`), and
        /// on which CPUs it may run.
        private func workers(_ daemon: pid_t) throws -> [(givesWay: Bool, cpus: String)] {
            let tasks = "/proc/\(daemon)/task"
            var found: [(givesWay: Bool, cpus: String)] = []
            for task in try FileManager.default.contentsOfDirectory(atPath: tasks) {
                let status = TestEnvironment.contents(ofKernelFile: "\(tasks)/\(task)/status")
                guard status.hasPrefix("Name:\tward-fuse-"), let thread = pid_t(task),
                    let line = status.split(separator: "\n").first(where: {
                        $0.hasPrefix("Cpus_allowed:")
                    })
                else { continue }
                found.append((sched_getscheduler(thread) == 5, String(line)))
            }
            return found
        }

        /// A volume served by root at the device, and its daemon. Nil if its workers never give
        /// way: they may not undo it, or there is one CPU.
        private func rootsVolume() throws -> (MountedVolume, daemon: pid_t)? {
            guard User.available.contains(.root), sysconf(Int32(_SC_NPROCESSORS_ONLN)) > 1 else {
                return nil
            }
            let volume = try MountedVolume(
                as: .root, mountArguments: ["--transport", "device"])
            return (volume, try #require(volume.daemonProcess()))
        }

        @Test(
            "at the device one worker gives way to a program that writes, and none once it has ended",
            .onQuietMachine)
        func givesWay() throws {
            guard let (volume, daemon) = try rootsVolume() else { return }
            let all = try #require(try workers(daemon).first).cpus
            #expect(try workers(daemon).allSatisfy { !$0.givesWay && $0.cpus == all })
            let writers = try Writers(on: volume, [("f", "paced")])
            // Only after many requests came one after the other.
            while try !workers(daemon).contains(where: { $0.givesWay && $0.cpus != all }) {
                try #require(writers.programs[0].wait(seconds: 0) == nil)
                usleep(500)
            }
            // A lock ends the giving way, and the writing goes on.
            try volume.lock()
            try #require(writers.programs[0].wait(seconds: 0) == nil)
            writers.kill()
            while try workers(daemon).contains(where: { $0.givesWay }) { usleep(500) }
            #expect(try volume.ward("status", volume.mountPoint).succeeded)
        }

        @Test(
            "a program on a CPU that the daemon may not use is not given way to: it can't be followed",
            .onQuietMachine)
        func otherCPU() throws {
            guard let (volume, daemon) = try rootsVolume() else { return }
            func taskset(_ words: String...) throws -> Finished {
                try Child.run(
                    ["taskset", "-a", "-c", "-p"] + words, environment: volume.environment)
            }
            // "pid 12's current affinity list: 0-3,6".
            let list = try #require(try taskset("\(daemon)").output.split(separator: " ").last)
            let cpus = list.split(whereSeparator: { !$0.isNumber })
            let (first, last) = (try String(#require(cpus.first)), try String(#require(cpus.last)))
            let writers = try Writers(on: volume, [("f", "paced")])
            let writer = writers.programs[0]
            defer { writers.kill() }
            #expect(try taskset(last, "\(writer.process)").succeeded)
            while try !workers(daemon).contains(where: { $0.givesWay }) {
                try #require(writer.wait(seconds: 0) == nil)
                usleep(500)
            }
            #expect(try taskset(first, "\(daemon)").succeeded)
            // Longer than the tenth of a second for which a starving worker does not give way.
            var looks = 0
            while looks < 500 {
                looks = try workers(daemon).contains { $0.givesWay } ? 0 : looks + 1
                try #require(writer.wait(seconds: 0) == nil)
                usleep(500)
            }
        }

        @Test(
            "io_uring is used where it is offered, and refused with the next step where it is not",
            arguments: User.usual)
        func ring(user: User) throws {
            let volume = try MountedVolume(as: user, mountArguments: ["--transport", "device"])
            try volume.unmount()
            let done = try volume.ward(
                "mount", volume.volume, volume.mountPoint, "--transport", "io-uring")
            guard !Self.isOffered else {
                #expect(done.succeeded, "\(done.everything)")
                #expect(try transport(volume) == "io-uring")
                #expect(try volume.ward("status", volume.mountPoint).output.contains("by io_uring"))
                #expect(try volume.ward("unmount", volume.mountPoint).succeeded)
                return
            }
            #expect(done.status == 74, "\(done.everything)")
            #expect(
                done.everything.contains("the kernel does not offer FUSE over io_uring"),
                "\(done.everything)")
            #expect(done.everything.contains("enable_uring"), "\(done.everything)")
            // The failed mount left nothing behind.
            try volume.mount()
            #expect(try transport(volume) == "device")
        }

        @Test("auto is io_uring where root has turned it on", arguments: User.usual)
        func auto(user: User) throws {
            let volume = try MountedVolume(as: user, mountArguments: ["--transport", "auto"])
            #expect(try transport(volume) == (Self.isOffered ? "io-uring" : "device"))
        }

        @Test("$WARD_TRANSPORT is the default, and a word that it can't be is named")
        func variable() throws {
            let volume = try MountedVolume(
                as: User.available[0], mountArguments: ["--transport", "device"])
            try volume.unmount()
            let done = try Child.run(
                [TestEnvironment.shared.ward, "mount", volume.volume, volume.mountPoint],
                environment: volume.environment.merging(["WARD_TRANSPORT": "pigeon"]) { $1 })
            #expect(done.status == 64)
            #expect(
                done.everything.contains(
                    "pigeon: $WARD_TRANSPORT is to be one of auto, device, io-uring"),
                "\(done.everything)")
            try volume.mount()
        }
    }
}
