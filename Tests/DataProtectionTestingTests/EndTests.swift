import DataProtectionTesting
import Foundation
import Testing
import WardTestSupport

/// A device leaves no trace after the test, however the test ends.
@Suite struct EndTests {
    @Test("after remove() nothing is left, and calls say so")
    func removed() async throws {
        let device = try await SimulatedDevice()
        let directory = Leaks.directory(of: device.path)
        #expect(!Leaks.of(directory).isEmpty)
        try await device.remove()
        #expect(Leaks.of(directory).isEmpty)
        await #expect(throws: SimulatorError.self) { try await device.audit() }
        await #expect(throws: (any Error).self) { try await device.lock() }
        try await device.remove()
    }

    @Test("with open files, too")
    func removedWhileUsed() async throws {
        let device = try await SimulatedDevice()
        try device.write("x", to: "file")
        let file = try FileHandle(forReadingFrom: URL(fileURLWithPath: device.file("file")))
        try await device.remove()
        #expect(Leaks.of(Leaks.directory(of: device.path)).isEmpty)
        try file.close()
    }

    @Test("after the last reference went")
    func released() async throws {
        var device: SimulatedDevice? = try await SimulatedDevice()
        let directory = Leaks.directory(of: try #require(device).path)
        device = nil
        #expect(await Leaks.left(of: directory).isEmpty)
    }

    @Test("after the test's process was killed, or crashed")
    func crashed() async throws {
        // Another process of this program makes a device, says where it is, and dies of a signal.
        for signal in [SIGKILL, SIGSEGV] {
            let own = try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")
            let child = try Child.run(
                [own, "--testing-library", "swift-testing", "--filter", "Victim"],
                environment: ProcessInfo.processInfo.environment.merging([
                    Victim.variable: "\(signal)", "SWIFT_BACKTRACE": "enable=no",
                ]) { $1 })
            #expect(child.status == 128 + signal)
            let line = try #require(
                child.output.split(separator: "\n").first { $0.hasPrefix("device ") },
                "\(child.everything)")
            let directory = String(line.dropFirst("device ".count))
            #expect(directory.contains("/ward-test."))
            #expect(await Leaks.left(of: directory).isEmpty)
        }
    }

    @Test("a body that throws leaves nothing either, and its error comes through")
    func thrown() async throws {
        struct Mistake: Error {}
        var directory = ""
        await #expect(throws: Mistake.self) {
            try await withSimulatedDevice { device in
                directory = Leaks.directory(of: device.path)
                throw Mistake()
            }
        }
        #expect(Leaks.of(directory).isEmpty)
    }
}

/// Only for `EndTests.crashed`, which runs it in a process of its own.
@Suite struct Victim {
    static let variable = "WARD_TEST_VICTIM"

    @Test(.enabled(if: ProcessInfo.processInfo.environment[variable] != nil), .simulatedDevice())
    func dies() async throws {
        let directory = Leaks.directory(of: SimulatedDevice.current.path)
        FileHandle.standardOutput.write(Data("device \(directory)\n".utf8))
        let signal = Int32(ProcessInfo.processInfo.environment[Self.variable] ?? "") ?? SIGKILL
        kill(getpid(), signal)
        while true { pause() }
    }
}
