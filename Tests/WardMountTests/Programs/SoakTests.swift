import Foundation
import Testing

extension MountSuite {
    /// The short form of `make soak`: adversaries use a volume in every way that the kernel offers,
    /// while it is locked and unlocked at random moments.
    @Suite struct SoakTests {
        /// The directory of the adversaries' sources, found from this file's path.
        static let sources =
            String(
                #filePath.dropLast("Tests/WardMountTests/Programs/SoakTests.swift".count)) + "soak"

        @Test(
            "L1, L2, O1–O15 under attack: no leak, no loss, nothing that the semantics forbid",
            arguments: User.usual)
        func short(user: User) throws {
            let soak = try Soak(as: user)
            defer { soak.remove() }
            let seconds = user == .root ? 8 : 7
            let done = try soak.run([
                "--ward", TestEnvironment.shared.ward, "--seconds", String(seconds), "--processes",
                "10",
                "--json",
            ])
            try #require(done.succeeded, "\(done.everything)")
            let report = try #require(
                try JSONSerialization.jsonObject(with: Data(done.output.utf8)) as? [String: Any])
            for what in ["leaks", "losses", "wrong"] { #expect(report[what] as? Int == 0) }
            // It must have done some work, even on a slow machine.
            for what in ["cycles", "operations", "refusalsThatHadToBe", "verifiedFiles"] {
                #expect((report[what] as? Int).map { $0 > 0 } == true, "\(what): \(done.output)")
            }
        }

        @Test("The adversaries notice every leak and loss of a plain directory")
        func bites() throws {
            let soak = try Soak(as: User.available[0])
            defer { soak.remove() }
            let done = try soak.run(["--self-test", "--seconds", "3", "--processes", "8"])
            #expect(done.succeeded, "\(done.everything)")
            #expect(done.output.hasPrefix("self-test: "), "\(done.everything)")
        }
    }
}

/// The built adversary and its driver in a directory of their own, where any user can run them.
private struct Soak {
    let user: User
    let directory: String

    init(as user: User) throws {
        self.user = user
        directory = try TestEnvironment.shared.makeDirectory("soak")
        let sources = MountSuite.SoakTests.sources
        let names = try FileManager.default.contentsOfDirectory(atPath: sources)
        for name in names {
            try FileManager.default.copyItem(
                atPath: sources + "/" + name, toPath: directory + "/" + name)
        }
        chown(directory, user.userID, user.groupID)
    }

    func run(_ arguments: [String]) throws -> Finished {
        let environment = TestEnvironment.shared
        return try Child.run(
            user.prefix + [environment.python, directory + "/run", "--build", directory + "/build"]
                + ["--directory", directory] + arguments,
            environment: environment.variables, seconds: 240)
    }

    func remove() { try? FileManager.default.removeItem(atPath: directory) }
}
