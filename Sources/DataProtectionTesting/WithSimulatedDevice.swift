import WardFormat

/// Runs `body` with its own device, which is removed when `body` returns or throws. It is for
/// XCTest, and for other code without the trait:
///
/// ```swift
/// func testDiaryIsLocked() async throws {
///     try await withSimulatedDevice(passcode: "1234") { device in … }
/// }
/// ```
///
/// `SimulatedDevice.current` is the device while `body` runs. Throws `SimulatorError`, and the
/// errors of `body`.
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

    /// The device of the running test, by the trait `.simulatedDevice()` or by
    /// `withSimulatedDevice`. In other places the call ends the process, because it is a mistake of
    /// the test.
    public static var current: SimulatedDevice {
        guard let device = currentDevice else {
            preconditionFailure(
                "SimulatedDevice.current needs the trait .simulatedDevice() or withSimulatedDevice")
        }
        return device
    }
}
