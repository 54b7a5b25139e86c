import DataProtectionTesting
import XCTest

/// The library does not need XCTest, and works with it: docs/testing.md shows both forms.
final class XCTestTests: XCTestCase {
    private var device: SimulatedDevice?

    override func setUp() async throws { device = try await SimulatedDevice() }
    override func tearDown() async throws { try await device?.remove() }

    func testDeviceOfTheTestCase() async throws {
        let device = try XCTUnwrap(device)
        try device.write("x", to: "file")
        try await device.reboot()
        XCTAssertThrowsError(try device.read("file"))
    }

    func testDeviceOfABlock() async throws {
        try await withSimulatedDevice(passcode: "4321") { device in
            XCTAssertTrue(device === SimulatedDevice.current)
            let state = try await device.lock(.now)
            XCTAssertEqual(state, .locked)
        }
    }
}
