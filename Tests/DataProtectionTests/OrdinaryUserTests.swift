import DataProtection
import Testing
import WardTestSupport

extension DataProtectionSuite {
    /// The library for an ordinary user, because root has more rights and sees fewer refusals.
    @Suite struct OrdinaryUserTests {
        @Test("the other suites, as nobody", .enabled(if: geteuid() == 0))
        func asNobody() throws {
            let suites =
                "(Attribute|Writing|Copy|Error|Policy|AppleSample|ProtectedData|BackupExclusion|"
                + "ContainerDirectory)Tests"
            let done = try OrdinaryUserRun.run(filter: "DataProtectionTests\\..*" + suites)
            #expect(done.status == 0, "\(done.output)")
            // The suites did run.
            #expect(done.output.contains("Suite CopyTests passed"))
        }
    }
}
