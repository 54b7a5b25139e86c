import DataProtection
import Notes
import Testing

@Suite struct NoteStoreTests {
    /// Runs twice: unlocked, then locked.
    @Test func notes() throws {
        let store = try NoteStore()
        if ProtectedData.shared.isAvailable {
            try store.save("secret", as: "first")
            #expect(try store.note(named: "first") == "secret")
            #expect(try store.protection(ofNoteNamed: "first") == .complete)
        } else {
            #expect(throws: NoteStore.Problem.locked) { try store.note(named: "first") }
            #expect(throws: CocoaError.self) { try store.save("more", as: "second") }
            #expect(try store.protection(ofNoteNamed: "first") == .complete)
        }
        print("notes: \(ProtectedData.shared.isAvailable ? "unlocked" : "locked")")
    }
}
