import Foundation
import Testing

extension MountSuite {
    /// The short form of the real power cuts of `make crash`: a recorder below a real ext4, and
    /// images rebuilt from its log. Loop devices need root.
    @Suite(.enabled(if: geteuid() == 0 && access("/dev/loop-control", R_OK | W_OK) == 0))
    struct PowerCutTests {
        private static let program =
            String(#filePath.dropLast("Tests/WardMountTests/Programs/PowerCutTests.swift".count))
            + "crash/run"

        @Test("The recorder keeps the order, and a program that does not sync is caught")
        func bites() throws {
            let done = try run(["--self-test"])
            #expect(done.succeeded, "\(done.everything)")
            #expect(done.output.hasPrefix("self-test: "), "\(done.everything)")
        }

        @Test(
            "Power cuts on a real ext4: nothing synced is lost, nothing honest refused, nothing tampered accepted"
        )
        func short() throws {
            let done = try run([
                "--ward", TestEnvironment.shared.ward, "--systems", "ward,ward512", "--cuts", "1",
                "--workloads", "appends,truncate,directories,classes",
                "--disks", "flushed,part in 4 KiB", "--json",
            ])
            try #require(done.succeeded, "\(done.everything)")
            let report = try #require(
                try JSONSerialization.jsonObject(with: Data(done.output.utf8)) as? [String: Any])
            let cells = try #require(report["cells"] as? [[String: Any]])
            func total(_ what: String) -> Int { cells.reduce(0) { $0 + ($1[what] as? Int ?? 0) } }
            for what in ["lost", "refused", "accepted", "broken"] { #expect(total(what) == 0) }
            // Two volumes, four workloads, two disks; some are cut twice, some have a file that was
            // changed.
            #expect(total("cuts") == 16)
            #expect(total("second") > 0)
            #expect(total("probes") > 0)
            #expect(total("older") > 0)
        }

        private func run(_ arguments: [String]) throws -> Finished {
            let environment = TestEnvironment.shared
            return try Child.run(
                [environment.python, "-B", PowerCutTests.program] + arguments,
                environment: environment.variables, seconds: 240)
        }
    }
}
