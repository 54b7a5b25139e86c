import Foundation
import Glibc
import Testing
import WardTestSupport

extension MountSuite {
    /// A run of these tests that is killed leaves no mount, process or file behind.
    @Suite struct KilledRunTests {
        /// The file in which the run that is to be killed notes the things that it made.
        private static let variable = "WARD_TEST_TO_BE_KILLED"
        private static let note = ProcessInfo.processInfo.environment[variable]

        @Test("is killed", .enabled(if: note != nil), arguments: User.usual.suffix(1))
        func isKilled(user: User) throws {
            let volume = try MountedVolume(as: user)
            try Data(TestEnvironment.shared.base.utf8).write(
                to: URL(fileURLWithPath: #require(Self.note)), options: .atomic)
            withExtendedLifetime(volume) { while true { pause() } }
        }

        @Test("what a killed run had mounted, started and made is gone", .enabled(if: note == nil))
        func killed() throws {
            let directory = try TestEnvironment.shared.makeDirectory("killed")
            defer { try? FileManager.default.removeItem(atPath: directory) }
            let own = try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")
            let run = try Child(
                [own, "--testing-library", "swift-testing", "--filter", "KilledRunTests/isKilled"],
                environment: ProcessInfo.processInfo.environment.merging([
                    Self.variable: directory + "/note"
                ]) { $1 })
            var base: String?
            let isNoted = comesTrue(within: 60) {
                base = try? String(contentsOfFile: directory + "/note", encoding: .utf8)
                return base != nil || run.wait(seconds: 0) != nil
            }
            try #require(isNoted, "the run notes its directory")
            let place = try #require(base)
            #expect(place.hasPrefix("/tmp/ward-tests-") && place != TestEnvironment.shared.base)
            func isNamed(in file: String) -> Bool {
                TestEnvironment.contents(ofKernelFile: file).contains(place)
            }
            #expect(isNamed(in: "/proc/self/mountinfo"))
            run.kill()
            #expect(
                comesTrue(within: 60) { !FileManager.default.fileExists(atPath: place) },
                "the directory goes")
            #expect(!isNamed(in: "/proc/self/mountinfo"))
            for process in try FileManager.default.contentsOfDirectory(atPath: "/proc")
            where pid_t(process) != nil {
                #expect(!isNamed(in: "/proc/\(process)/cmdline"))
            }
        }
    }
}
