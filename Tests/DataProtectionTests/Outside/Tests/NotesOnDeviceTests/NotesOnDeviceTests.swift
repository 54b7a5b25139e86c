import DataProtection
import DataProtectionTesting
import Notes
import Testing

@Suite struct NotesOnDeviceTests {
    @Test(.simulatedDevice(passcode: "1234")) func lockedIsNotMissing() async throws {
        let device = SimulatedDevice.current
        let store = try NoteStore(in: device.url)
        try store.save("secret", as: "first")
        try await device.lock()
        #expect(try store.note(named: "first") == "secret", "in the grace period")
        try await device.advance(by: .seconds(10))
        #expect(throws: NoteStore.Problem.locked) { try store.note(named: "first") }
        try await device.unlock()
        #expect(try store.note(named: "first") == "secret")
        try await device.expectFiles(under: "Notes", are: .complete)
        try await device.expectNothingRemovedUnread()
        print("notes: on a device")
    }
}
