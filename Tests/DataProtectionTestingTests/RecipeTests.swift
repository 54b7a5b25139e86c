import DataProtectionTesting
import Foundation
import Testing

/// The recipes of docs/testing.md: each one passes where it should, and else fails with a message
/// that names the file.
@Suite(.simulatedDevice()) struct RecipeTests {
    private var device: SimulatedDevice { .current }

    @Test("this launch, before first unlock, touches nothing that it can't read")
    func launchBeforeFirstUnlock() async throws {
        try device.write("blue", to: "settings")
        try device.makeDirectory("D", of: .none)
        try device.write("state", to: "D/state")
        try device.shell("cat settings")
        let answer = try await device.expectNothingDeniedBeforeFirstUnlock {
            try device.read("D/state")
        }
        #expect(answer == "state")
        let unmet = await #expect(throws: UnmetExpectation.self) {
            try await device.expectNothingDeniedBeforeFirstUnlock {
                try device.read("settings")
            }
        }
        let text = unmet?.description ?? ""
        #expect(text.contains("touches") || text.contains("touched"))
        #expect(text.contains("open /settings, class C, while before first unlock"))
        #expect(text.contains("and then it threw"))
        // An unrelated error comes through unchanged.
        await #expect(throws: CocoaError.self) {
            try await device.expectNothingDenied { try device.read("missing") }
        }
    }

    @Test("only what is refused during the recording counts")
    func recording() async throws {
        try device.write("blue", to: "settings")
        try await device.reboot()
        try device.shell("cat settings")
        let quiet = try await device.recording { 7 }
        #expect(quiet.value == 7 && quiet.denials.isEmpty && quiet.removedUnread.isEmpty)
        // Equal events become one event with a count: only the new ones are counted here.
        let again = try await device.recording { try device.shell("cat settings; cat settings") }
        #expect(again.denials.map(\.count) == [2])
    }

    @Test("no file is ever replaced or deleted while it could not be read")
    func nothingRemovedUnread() async throws {
        try device.write("blue", to: "settings")
        try await device.reboot()
        try await device.expectNothingRemovedUnread()
        try device.shell("rm settings")
        let unmet = await #expect(throws: UnmetExpectation.self) {
            try await device.expectNothingRemovedUnread()
        }
        #expect(unmet?.evidence.first?.contains("unlink /settings") == true)
    }

    @Test("every file under Documents is class complete")
    func everyFileIsComplete() async throws {
        try device.makeDirectory("Documents", of: .complete)
        await #expect(throws: UnmetExpectation.self) {
            try await device.expectFiles(under: "Documents", are: .complete)
        }
        try device.write("a", to: "Documents/a")
        try device.write("b", to: "b")
        try await device.expectFiles(under: "Documents", are: .complete)
        try await device.expectFiles(under: "/Documents/", are: .complete)
        let unmet = await #expect(throws: UnmetExpectation.self) {
            try await device.expectFiles(are: .complete)
        }
        #expect(
            unmet?.evidence == ["/b is class completeUntilFirstUserAuthentication"])
    }

    @Test("an audit finds nothing, or what is allowed")
    func cleanAudit() async throws {
        try device.makeDirectory("A", of: .complete)
        try device.write("the secret recipe", to: "A/recipe")
        try await device.expectCleanAudit()
        try device.write("the secret recipe", to: "copy")
        let unmet = await #expect(throws: UnmetExpectation.self) {
            try await device.expectCleanAudit()
        }
        #expect(unmet?.description.contains("/copy") == true)
        try await device.expectCleanAudit(allowing: [.readableCopy])
        try await device.lock(.now)
        await #expect(throws: UnmetExpectation.self) {
            try await device.expectCleanAudit(allowing: [.readableCopy])
        }
    }
}
