import WardFormat

/// Runs `body` with a device of its own, removed when it returns or throws. For XCTest, and
/// wherever there is no trait:
///
/// ```swift
/// func testDiaryIsLocked() async throws {
///     try await withSimulatedDevice(passcode: "1234") { device in … }
/// }
/// ```
///
/// `SimulatedDevice.current` is the device while it runs.
public func withSimulatedDevice<Value>(
    passcode: String? = "1234", gracePeriod: Duration = .seconds(10),
    defaultClass: ProtectionClass = .completeUntilFirstUserAuthentication,
    isolation: isolated (any Actor)? = #isolation,
    _ body: (SimulatedDevice) async throws -> Value
) async throws -> Value {
    let device = try await SimulatedDevice(
        passcode: passcode, gracePeriod: gracePeriod, defaultClass: defaultClass)
    let value: Value
    do {
        value = try await SimulatedDevice.$currentDevice.withValue(device) {
            try await body(device)
        }
    } catch {
        try? await device.remove()
        throw error
    }
    try await device.remove()
    return value
}

extension SimulatedDevice {
    @TaskLocal static var currentDevice: SimulatedDevice?

    /// The device of the test that runs: below the trait `.simulatedDevice()` or
    /// `withSimulatedDevice`. Anywhere else it ends the process: a mistake of the test's.
    public static var current: SimulatedDevice {
        guard let device = currentDevice else {
            preconditionFailure(
                "SimulatedDevice.current needs the trait .simulatedDevice() or withSimulatedDevice")
        }
        return device
    }
}
