import Foundation
import Testing

extension Trait where Self == ConditionTrait {
    /// For tests of what the kernel's scheduler does with a thread: they say something on a quiet
    /// machine alone, and run by `make test-scheduler` (`WARD_TEST_SCHEDULER=1`).
    package static var onQuietMachine: Self {
        .enabled(
            if: ProcessInfo.processInfo.environment["WARD_TEST_SCHEDULER"] == "1",
            "make test-scheduler runs it, on a quiet machine")
    }
}
