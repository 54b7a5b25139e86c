import DataProtection
import Testing
import WardTestSupport

extension DataProtectionSuite {
    /// The library for an ordinary user: root may do more, and be refused less.
    @Suite struct OrdinaryUserTests {
        @Test("the other suites, as nobody", .enabled(if: geteuid() == 0))
        func asNobody() throws {
            let suites =
                "(Attribute|Writing|Copy|Error|Policy|AppleSample|ProtectedData|ContainerDirectory)Tests"
            let done = try OrdinaryUserRun.run(filter: "DataProtectionTests\\..*" + suites)
            #expect(done.status == 0, "\(done.output)")
            // Some were there to run.
            #expect(done.output.contains("Suite CopyTests passed"))
        }
    }
}
