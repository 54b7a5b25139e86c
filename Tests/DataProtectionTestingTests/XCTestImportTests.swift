import DataProtectionTesting
import DataProtectionXCTest

/// A test file of an iOS app with one import changed: it sees both protection and XCTest.
final class XCTestImportTests: XCTestCase {
    private var device: SimulatedDevice!

    override func setUp() async throws { device = try await SimulatedDevice() }
    override func tearDown() async throws { try await device.remove() }

    func testCallsProtect() async throws {
        let url = device.url.appendingPathComponent("x")
        try Data("x".utf8).write(to: url, options: [.atomic, .completeFileProtection])
        XCTAssertEqual(
            try url.resourceValues(forKeys: [.fileProtectionKey]).fileProtection, .complete)
        let attributes = try FileManager.default.attributesOfItem(atPath: url.path)
        XCTAssertEqual(attributes[.protectionKey] as? FileProtectionType, .complete)
        try await device.lock(.now)
        XCTAssertThrowsError(try Data(contentsOf: url)) { error in
            XCTAssertEqual((error as NSError).code, CocoaError.fileReadNoPermission.rawValue)
            XCTAssertNotNil(DataProtectionError(error))
        }
        try XCTSkipIf(false)  // Never skips: only the name is tried.
        XCTAssertGreaterThan(FileManager.default.temporaryDirectory.path.count, 0)
    }

    func testNotifications() async throws {
        let data = ProtectedData(at: device.url)
        let posting = data.postNotifications(on: .main)
        let gone = expectation(
            forNotification: ProtectedData.protectedDataWillBecomeUnavailableNotification,
            object: nil
        ) { _ in Thread.isMainThread }
        // Until the posting has begun, a change would only be a part of its first state.
        _ = await data.events.first { _ in true }
        try await device.lock()
        await fulfillment(of: [gone], timeout: 60)
        posting.cancel()
    }
}
