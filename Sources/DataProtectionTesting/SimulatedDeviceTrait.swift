#if canImport(Testing)
    import Testing
    import WardFormat

    /// Gives a test, or each test of a suite, its own device: `SimulatedDevice.current`.
    ///
    /// ```swift
    /// @Test(.simulatedDevice(passcode: "1234")) func diaryIsLocked() async throws {
    ///     let device = SimulatedDevice.current
    /// }
    /// ```
    public struct SimulatedDeviceTrait: TestTrait, SuiteTrait, TestScoping {
        let passcode: String?
        let gracePeriod: Duration
        let defaultClass: ProtectionClass

        /// A suite passes the trait to its tests, so that each test has its own device.
        public var isRecursive: Bool { true }

        public func scopeProvider(
            for test: Test, testCase: Test.Case?
        ) -> SimulatedDeviceTrait? {
            testCase == nil ? nil : self
        }

        public func provideScope(
            for test: Test, testCase: Test.Case?,
            performing function: @concurrent @Sendable () async throws -> Void
        ) async throws {
            try await withSimulatedDevice(
                passcode: passcode, gracePeriod: gracePeriod, defaultClass: defaultClass
            ) { _ in try await function() }
        }
    }

    extension Trait where Self == SimulatedDeviceTrait {
        /// A device for each test, and for each case of a test with arguments.
        public static func simulatedDevice(
            passcode: String? = "1234", gracePeriod: Duration = .seconds(10),
            defaultClass: ProtectionClass = .completeUntilFirstUserAuthentication
        ) -> SimulatedDeviceTrait {
            SimulatedDeviceTrait(
                passcode: passcode, gracePeriod: gracePeriod, defaultClass: defaultClass)
        }
    }
#endif
