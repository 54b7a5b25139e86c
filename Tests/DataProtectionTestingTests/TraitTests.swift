import DataProtectionTesting
import Foundation
import Testing

/// The trait gives each test and each case a device, on suites and on tests.
@Suite(.simulatedDevice(passcode: "suite")) struct TraitTests {
    @Test("each case has a device of its own", arguments: 0..<3)
    func cases(number: Int) async throws {
        let device = SimulatedDevice.current
        #expect(device.passcode == "suite")
        #expect(try FileManager.default.contentsOfDirectory(atPath: device.path).isEmpty)
        try device.write("\(number)", to: "file")
    }

    @Test("a test's own trait is the nearer one", .simulatedDevice(passcode: "test"))
    func nearer() { #expect(SimulatedDevice.current.passcode == "test") }
}
