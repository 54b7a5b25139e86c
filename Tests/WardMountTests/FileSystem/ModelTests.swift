import Foundation
import Testing

extension MountSuite {
    /// Random operations, compared with the same on a plain file system. A seed replays a run.
    @Suite struct ModelTests {
        @Test(
            "Content, length, holes and allocation behave as on a plain file system",
            arguments: User.usual, [4096, 512])
        func content(user: User, pageSize: Int) throws {
            let volume = try MountedVolume(
                as: user, initArguments: ["--page-size", String(pageSize)])
            // A small dense file, a larger one, and a sparse one of more than 4 GiB.
            let runs = [(1, 300, 20_000), (2, 250, 300_000), (3, 150, 6_000_000_000)]
            for round in 0..<2 {
                for (seed, operations, span) in runs {
                    let file = "'\(volume.mountPoint)/\(seed)' \"$OUT/\(seed)\""
                    let script = TestEnvironment.shared.script("model.py")
                    try volume.shell(
                        "\(TestEnvironment.shared.python) \(script) \(file) "
                            + "\(seed + 10 * round + pageSize) \(operations) \(span)")
                    try volume.remount()
                    try volume.shell(
                        "\(TestEnvironment.shared.python) \(script) \(file) 0 0 \(span) check")
                }
            }
        }

        @Test("Processes that work side by side see each file whole", arguments: User.usual)
        func sideBySide(user: User) throws {
            let volume = try MountedVolume(as: user)
            let script = TestEnvironment.shared.script("stress.py")
            for seed in 1...2 {
                try volume.shell(
                    "\(TestEnvironment.shared.python) \(script) \"$MNT\" \(seed) 400 6")
                try volume.remount()
            }
        }

        @Test(
            "A path that is replaced all the time can be opened at every moment",
            arguments: User.usual)
        func replaced(user: User) throws {
            let volume = try MountedVolume(as: user)
            let script = TestEnvironment.shared.script("replaced.py")
            try volume.shell("\(TestEnvironment.shared.python) \(script) \"$MNT\" 2000")
        }

        @Test("The same after the daemon was killed", arguments: User.usual)
        func afterKill(user: User) throws {
            guard !TestEnvironment.shared.isPlain else { return }
            let volume = try MountedVolume(as: user)
            let script = TestEnvironment.shared.script("model.py")
            for seed in 100..<104 {
                let file = "'\(volume.mountPoint)/f' \"$OUT/f\""
                let run = "\(TestEnvironment.shared.python) \(script) \(file) \(seed)"
                try volume.shell("\(run) 150 100000")
                try volume.kill()
                try volume.mount()
                try volume.unlock()
                try volume.shell("\(run) 0 100000 check")
            }
        }
    }
}
