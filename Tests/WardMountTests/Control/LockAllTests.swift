import Foundation
import Testing

extension MountSuite {
    /// `ward lock --all`, and the script that calls it before the machine sleeps.
    @Suite struct LockAllTests {
        private static let hook =
            String(#filePath.dropLast("Tests/WardMountTests/Control/LockAllTests.swift".count))
            + "contrib/sleep-hook"

        @Test(
            "root locks every user's volumes, with nothing in its environment; so does the sleep hook",
            .enabled(if: geteuid() == 0))
        func everyUser() throws {
            let environment = TestEnvironment.shared
            let directory = try environment.makeDirectory("all")
            defer { try? FileManager.default.removeItem(atPath: directory) }
            let done = try Child.run(
                [
                    "unshare", "--mount", "--propagation", "private", "bash",
                    environment.script("all_users.sh"), directory, environment.ward,
                    LockAllTests.hook,
                ], environment: environment.variables, seconds: 500)
            #expect(done.succeeded, "\(done.everything)")
            let said = done.output.split(separator: "\n").filter { !$0.hasPrefix(directory) }
            #expect(
                said.map(String.init) == [
                    "open: 0 10 34", "root's status: 1",
                    "open after root's lock of one: 0 34",
                    "open after a user's lock of all: 0 10",
                    "open before the hook: 0 10 34",
                    "open after the hook:",
                    "open after waking and unlocking: 0 10 34",
                    "exit code with one dead and one hung: 1",
                    "errors: 2",
                    "open of root's: no",
                    "exit code with a runtime directory that hangs: 1", "errors: 2",
                    "status: 75, 1", "lock --now: 75, 1", "unlock: 75, 1", "unmount: 75, 1",
                    "unmounted by force: 0 1 0",
                    "exit code with nothing mounted: 69", "1", "done",
                ], "\(done.everything)")
        }

        @Test("the README quotes the hook that was run")
        func quoted() throws {
            let hook = try String(contentsOfFile: LockAllTests.hook, encoding: .utf8)
            let root = LockAllTests.hook.dropLast("contrib/sleep-hook".count)
            let readme = try String(contentsOfFile: root + "README.md", encoding: .utf8)
            let command = try #require(hook.split(separator: "\n").first { $0.contains("exec ") })
            let line = command.split(separator: "exec ").last?.split(separator: " ;;").first
            #expect(readme.contains(try #require(line)))
            #expect(readme.contains("contrib/sleep-hook"))
        }

        @Test(
            "a directory in /tmp that somebody else has taken keeps nobody from mounting and locking",
            .enabled(if: geteuid() == 0))
        func squatted() throws {
            let environment = TestEnvironment.shared
            let directory = try environment.makeDirectory("squatted")
            let taken = "/tmp/ward-13"
            #expect(mkdir(taken, 0o700) == 0)
            defer {
                rmdir(taken)
                try? FileManager.default.removeItem(atPath: directory)
            }
            chown(directory, 13, 13)
            let done = try Child.run(
                [
                    "setpriv", "--reuid=13", "--regid=13", "--clear-groups", "--", "env",
                    "-i",
                    "PATH=" + environment.variables["PATH"]!, "HOME=" + directory, "bash", "-euc",
                    """
                    cd '\(directory)'; ward='\(environment.ward)'
                    printf 'correct horse' >passcode; chmod 600 passcode; mkdir mnt
                    $ward init -q volume --passcode-file passcode --passcode-cost 1024
                    $ward mount -q volume mnt --passcode-file passcode
                    setfattr -n user.ward.class -v complete mnt; echo x >mnt/f
                    $ward lock mnt --now -q
                    ! cat mnt/f
                    $ward unlock mnt -q --passcode-file passcode
                    cat mnt/f
                    $ward unmount mnt
                    """,
                ], environment: environment.variables)
            #expect(done.succeeded, "\(done.everything)")
            let left = try FileManager.default.contentsOfDirectory(atPath: "/tmp")
            #expect(!left.contains { $0.hasPrefix("ward-13-") })
        }

        @Test(
            "a runtime directory that a user could exchange is refused as root's",
            .enabled(if: geteuid() == 0))
        func directoryOfAnother() throws {
            let volume = try MountedVolume(directoryOnlyAs: .root)
            try volume.initialize()
            chown(volume.runtimeDirectory, 65534, 65534)
            let done = try volume.ward("mount", volume.volume, volume.mountPoint)
            #expect(done.status == 77, "\(done)")
            #expect(done.errors.contains("belongs to uid 65534"), "\(done)")
            #expect(!FileManager.default.fileExists(atPath: volume.runtimeDirectory + "/ward"))
        }
    }
}
