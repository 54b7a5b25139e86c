import Foundation
import Testing

/// Checks after the whole suite that it left the machine as it was.
package struct LeakCheck: SuiteTrait, TestScoping {
    package func provideScope(
        for test: Test, testCase: Test.Case?,
        performing function: @concurrent @Sendable () async throws -> Void
    ) async throws {
        try await function()
        // The watchdog of a killed daemon needs a moment to notice its end.
        var left: [String] = []
        _ = await eventually(within: 30) {
            left = TestEnvironment.shared.leaks()
            return left.isEmpty
        }
        #expect(left.isEmpty, "left behind:\n\(left.joined(separator: "\n"))")
    }
}

extension Trait where Self == LeakCheck {
    package static var leavesNothingBehind: LeakCheck { LeakCheck() }
}
