import Foundation
import Testing

extension MountSuite {
    /// Each command that changes a volume is killed right before a call that changes something, and
    /// run again.
    @Suite struct KilledCommandTests {
        @Test(
            "A command killed at any call leaves the old or the new state, and finishes when it is run again",
            .serialized,
            arguments: [
                ("init", 7, 40), ("passcode", 5, 25), ("adopt", 5, 25), ("repair", 3, 40),
                ("erase", 4, 4), ("class", 4, 8),
            ])
        func killed(command: String, samples: Int, atLeast: Int) throws {
            let environment = TestEnvironment.shared
            let user = User.available.last!
            let isMounted = command == "class"
            let volume =
                isMounted ? try MountedVolume(as: user) : try MountedVolume(directoryOnlyAs: user)
            let done = try Child.run(
                user.prefix + [
                    environment.python, environment.script("kill_at.py"), environment.ward,
                    volume.directory + "/home", command, "\(samples)", volume.mountPoint,
                ], environment: volume.environment, seconds: 120)
            #expect(done.succeeded, "\(done.everything)")
            let counts = done.output.split(whereSeparator: \.isWhitespace).compactMap { Int($0) }
            #expect(counts.count == 2 && counts[0] >= atLeast, "\(done.output)")
        }
    }
}
