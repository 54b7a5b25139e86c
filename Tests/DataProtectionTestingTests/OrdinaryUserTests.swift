import Glibc
import Testing
import WardTestSupport

/// Everything works for an ordinary user, too.
@Suite struct OrdinaryUserTests {
    @Test("the other suites, as nobody", .enabled(if: geteuid() == 0))
    func asNobody() throws {
        let done = try OrdinaryUserRun.run(
            filter: "DataProtectionTestingTests\\.(Lifecycle|Audit|Recipe|Trait|End)Tests")
        #expect(done.status == 0, "\(done.output)")
        // The suites did run.
        #expect(done.output.contains("Suite AuditTests passed"))
    }
}
