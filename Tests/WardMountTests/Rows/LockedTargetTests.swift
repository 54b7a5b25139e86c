import Foundation
import Testing

extension MountSuite {
    /// Row I2 for programs that do not know classes: a copy or move into a locked volume.
    @Suite struct LockedTargetTests {
        private static let programs = [
            "cp -a": "cp -a \"$FROM\" \"$TO\"", "mv": "mv \"$FROM\" \"$TO\"",
            "rsync -aX": "rsync -aX \"$FROM\" \"$TO\"",
        ]

        @Test(
            "I2: what keeps a file's class and can't have it now fails, a move leaves its source",
            arguments: User.available)
        func classGoesAlong(user: User) throws {
            let source = try MountedVolume(as: user)
            let target = try MountedVolume(as: user)
            let probe = try source.probe()
            let there = try target.probe()
            for state in [LockState.locked, .beforeFirstUnlock] {
                try target.enter(.unlocked)
                #expect(there.mkdir("D \(state)") == .ok)
                #expect(there.setClass("D \(state)", "D") == .ok)
                try target.enter(state)
                for (name, program) in Self.programs {
                    for letter in ["A", "CX"] where letter == "A" || state == .beforeFirstUnlock {
                        let file = "\(name) \(letter) \(state)"
                        #expect(probe.writeFile(file, "secret") == .ok)
                        #expect(probe.setClass(file, letter) == .ok)
                        let done = try run(program, source, file, target, "D \(state)/\(file)")
                        #expect(!done.succeeded, "\(file): \(done.everything)")
                        #expect(!done.errors.isEmpty, "\(file)")
                        #expect(probe.readFile(file) == .data("secret"), "\(file): the source")
                        // If the file was created with a weaker class, an event says so.
                        guard there.exists("D \(state)/\(file)") else { continue }
                        let told = try ControlEvent.latest(of: target).last {
                            $0.kind == "weakened"
                        }
                        #expect(told?.fields["protectionClass"] == letter, "\(file)")
                    }
                }
            }
        }

        @Test(
            "O3: a file that would get a closed directory class is not made, a move leaves its source",
            arguments: User.available)
        func directoryClass(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            for letter in ["A", "C"] {
                #expect(probe.mkdir(letter) == .ok)
                #expect(probe.setClass(letter, letter) == .ok)
            }
            let plain = volume.directory + "/home/plain"
            for (state, letter) in [(LockState.locked, "A"), (.beforeFirstUnlock, "C")] {
                try volume.enter(state)
                for (name, program) in Self.programs {
                    try volume.shell("echo mine >'\(plain)'")
                    let done = try Child.run(
                        user.prefix + ["bash", "-euc", program],
                        environment: volume.environment.merging([
                            "FROM": plain, "TO": volume.mountPoint + "/" + letter + "/f",
                        ]) { $1 })
                    #expect(!done.succeeded && !done.errors.isEmpty, "\(name): \(done.everything)")
                    #expect(
                        try String(contentsOfFile: plain, encoding: .utf8) == "mine\n", "\(name)")
                    #expect(probe.list(letter) == .ok, "\(name)")
                }
            }
        }

        @Test("a copy whose class can be had succeeds in silence", arguments: User.available)
        func allowed(user: User) throws {
            let source = try MountedVolume(as: user)
            let target = try MountedVolume(as: user)
            let probe = try source.probe()
            try target.enter(.locked)
            // Class B takes new files in every state, C and D while locked.
            for letter in ["B", "C", "D"] {
                for (name, program) in Self.programs {
                    let file = "\(name) \(letter)"
                    #expect(probe.writeFile(file, "x") == .ok)
                    #expect(probe.setClass(file, letter) == .ok)
                    let done = try run(program, source, file, target, file)
                    #expect(done.succeeded && done.errors.isEmpty, "\(file): \(done.everything)")
                    let expected = FileClass.allCases.first { $0.letter == letter }!.apple
                    #expect(try target.probe().protectionClass(file) == .data(expected), "\(file)")
                }
            }
            let told = try ControlEvent.latest(of: target).filter { $0.kind == "weakened" }
            #expect(told.isEmpty, "\(told)")
        }

        private func run(
            _ program: String, _ source: MountedVolume, _ file: String, _ target: MountedVolume,
            _ place: String
        ) throws -> Finished {
            try Child.run(
                source.user.prefix + ["bash", "-euc", program],
                environment: target.environment.merging([
                    "FROM": source.mountPoint + "/" + file, "TO": target.mountPoint + "/" + place,
                ]) { $1 })
        }
    }
}
