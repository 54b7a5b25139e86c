import DataProtection
import DataProtectionTesting
import RunTracker
import Testing

/// Tests the app on a simulated device, whose lock and clock the test controls.
@Suite struct RunTrackerTests {
    /// A run along a meridian: one point a second, 11 m apart.
    private func point(_ second: Int) -> Point {
        Point(
            time: Date(timeIntervalSince1970: 1_700_000_000 + Double(second)),
            latitude: 52 + Double(second) / 10_000, longitude: 13)
    }

    private func record(_ seconds: Range<Int>, _ tracker: RunTracker) async throws {
        for second in seconds { try await tracker.record(point(second)) }
    }

    @Test(.simulatedDevice()) func everythingHasItsClass() async throws {
        let device = SimulatedDevice.current
        let tracker = try RunTracker(home: device.url)
        try await tracker.save(Settings())
        try await tracker.start(at: point(0).time)
        try await record(0..<3, tracker)
        try await device.expectFiles(under: "Tracks", are: .completeUnlessOpen)
        try await tracker.finish()
        let history = device.url.appendingPathComponent("History/runs.sqlite").path
        #expect(
            try FileManager.default.attributesOfItem(atPath: history)[.protectionKey]
                as? FileProtectionType == .complete)
        // The audit finds no readable copy of it, and no side file of another class.
        try await device.expectCleanAudit()
    }

    /// The phone locks in the pocket during a run, and is unlocked at home.
    @Test(.simulatedDevice()) func lockInMidRun() async throws {
        let device = SimulatedDevice.current
        let tracker = try RunTracker(home: device.url)
        #expect(try await tracker.runs().isEmpty)
        try await tracker.start(at: point(0).time)
        try await record(0..<60, tracker)
        try await device.lock()
        try await device.advance(by: .seconds(10))
        try await record(60..<120, tracker)
        try await tracker.finish()
        // The next run can also begin without an unlock.
        try await tracker.start(at: point(200).time)
        try await record(200..<230, tracker)
        try await tracker.finish()
        await #expect(throws: DataProtectionError.locked(class: .complete, state: .locked)) {
            _ = try await tracker.runs()
        }
        try await device.unlock()
        try await tracker.importTracks()
        let runs = try await tracker.runs()
        #expect(runs.map(\.points) == [30, 120])
        #expect(runs.map(\.seconds) == [29, 119])
        #expect(abs(runs[1].meters - 119 * 11.12) < 5)
        try await device.expectNothingRemovedUnread()
    }

    /// An unlock is enough for the import; no other call is needed.
    @Test(.simulatedDevice()) func tracksAreTakenInAfterTheUnlock() async throws {
        let device = SimulatedDevice.current
        let tracker = try RunTracker(home: device.url)
        let following = Task { await tracker.followUnlocks() }
        defer { following.cancel() }
        try await device.lock(.now)
        try await tracker.start(at: point(0).time)
        try await record(0..<5, tracker)
        try await tracker.finish()
        try await device.unlock()
        // Waits at most ten seconds.
        for _ in 0..<1000 {
            if try await !tracker.runs().isEmpty { break }
            try await Task.sleep(for: .milliseconds(10))
        }
        #expect(try await tracker.runs().map(\.points) == [5])
    }

    /// The battery was empty, the phone restarts in the pocket, and an alarm launches the app
    /// before the first unlock.
    @Test(.simulatedDevice()) func rebootBeforeFirstUnlock() async throws {
        let device = SimulatedDevice.current
        var settings = Settings()
        settings.unit = .miles
        do {
            let before = try RunTracker(home: device.url)
            try await before.save(settings)
            try await before.start(at: point(0).time)
            try await record(0..<10, before)
            // The app ends in the middle of the run.
        }
        let home = device.url
        let tracker = try await device.expectNothingDeniedBeforeFirstUnlock {
            let tracker = try RunTracker(home: home)
            try await tracker.start(at: point(100).time)
            try await record(100..<110, tracker)
            try await tracker.finish()
            return tracker
        }
        // A lock must not look like "no settings".
        await #expect(throws: CocoaError.self) { try await tracker.settings() }
        try await device.unlock()
        #expect(try await tracker.settings() == settings)
        try await tracker.importTracks()
        #expect(try await tracker.runs().map(\.points) == [10, 10])
        try await device.expectNothingRemovedUnread()
    }

    /// The disk is full in the middle of a run. The recorded points stay, and the run goes on when
    /// there is space again.
    @Test(.simulatedDevice()) func diskFull() async throws {
        let device = SimulatedDevice.current
        let tracker = try RunTracker(home: device.url)
        try await tracker.start(at: point(0).time)
        try await record(0..<10, tracker)
        try await device.runOutOfSpace()
        var recorded = 10
        // Points that need no new page are still recorded.
        await #expect(throws: CocoaError.self) {
            for second in 10..<1000 {
                try await tracker.record(point(second))
                recorded += 1
            }
        }
        try await device.makeSpace()
        try await record(1000..<1010, tracker)
        try await tracker.finish()
        #expect(try await tracker.runs().map(\.points) == [recorded + 10])
    }
}
