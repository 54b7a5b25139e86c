import DataProtectionLinux
import DataProtectionTesting
import Foundation
import Testing

/// A real volume that locks, unlocks, reboots and dies at the test's command.
@Suite struct LifecycleTests {
    @Test("lock, grace period on the device's clock, unlock", .simulatedDevice())
    func lockAndUnlock() async throws {
        let device = SimulatedDevice.current
        try device.makeDirectory("A", of: .complete)
        try device.write("dear diary", to: "A/diary")
        #expect(try await device.state == .unlocked)
        #expect(try await device.lock() == .locking)
        #expect(try await device.advance(by: .seconds(9.9)) == .locking)
        #expect(try device.read("A/diary") == "dear diary")
        #expect(try await device.availability(of: .complete))
        #expect(try await device.advance(by: .seconds(0.2)) == .locked)
        #expect(throws: CocoaError.self) { try device.read("A/diary") }
        #expect(try await !device.availability(of: .complete))
        #expect(try await device.availability(of: .completeUntilFirstUserAuthentication))
        #expect(try await device.unlock() == .unlocked)
        #expect(try device.read("A/diary") == "dear diary")
        #expect(try await device.lock(.now) == .locked)
    }

    @Test("a class is said to be there only once its files can be read", .simulatedDevice())
    func available() async throws {
        let device = SimulatedDevice.current
        try device.makeDirectory("A", of: .complete)
        try device.write("dear diary", to: "A/diary")
        let file = try FileHandle(forUpdating: URL(fileURLWithPath: device.path + "/A/diary"))
        let data = ProtectedData(at: URL(fileURLWithPath: device.path))
        for _ in 0..<10 {
            try await device.lock(.now)
            async let unlocked = device.unlock()
            // A refused write leaves a page that the kernel must drop, and an unlock right after it
            // waits for that (decision 0067).
            while !data.isAvailable(for: .complete) {
                try? file.seek(toOffset: 0)
                try? file.write(contentsOf: Data("dear".utf8))
                // The unlock gets no thread while all threads wait.
                await Task.yield()
            }
            #expect(try device.read("A/diary") == "dear diary")
            #expect(try await unlocked == .unlocked)
        }
    }

    @Test("a wrong passcode does not unlock; the right one can be named", .simulatedDevice())
    func passcodes() async throws {
        let device = SimulatedDevice.current
        try await device.lock(.now)
        await #expect(throws: (any Error).self) { try await device.unlock("4321") }
        #expect(try await device.state == .locked)
        #expect(try await device.unlock("1234") == .unlocked)
    }

    @Test("reboot: before first unlock, class C closed", .simulatedDevice(passcode: "göod"))
    func reboot() async throws {
        let device = SimulatedDevice.current
        try device.write("blue", to: "settings")
        #expect(try await device.reboot() == .beforeFirstUnlock)
        #expect(throws: CocoaError.self) { try device.read("settings") }
        #expect(try await device.unlock() == .unlocked)
        #expect(try device.read("settings") == "blue")
    }

    @Test("without a passcode nothing is withheld", .simulatedDevice(passcode: nil))
    func noPasscode() async throws {
        let device = SimulatedDevice.current
        #expect(try await device.state == .noPasscode)
        #expect(try await device.lock(.now) == .noPasscode)
        #expect(try await device.availability(of: .complete))
    }

    @Test(
        "the default class and the grace period are the test's to choose",
        .simulatedDevice(gracePeriod: .zero, defaultClass: .complete))
    func settings() async throws {
        let device = SimulatedDevice.current
        try device.write("x", to: "file")
        #expect(try await device.audit().files.map(\.protectionClass) == [.complete])
        #expect(try await device.lock() == .locked)
    }

    @Test(
        "killed: every access fails; restarted: all that was written is there", .simulatedDevice())
    func killAndRestart() async throws {
        let device = SimulatedDevice.current
        try device.write("kept", to: "file")
        #expect(throws: (any Error).self) { try device.read("missing") }
        try await device.reboot()
        try device.shell("cat file")
        try await device.kill()
        #expect(throws: (any Error).self) { try device.read("file") }
        await #expect(throws: (any Error).self) { try await device.lock() }
        try await device.restart()
        #expect(try await device.state == .beforeFirstUnlock)
        // The dead daemon's denials are kept.
        #expect(try await device.denials.map(\.program) == ["cat"])
        try await device.unlock()
        #expect(try device.read("file") == "kept")
        try await device.restart()
        #expect(try await device.state == .beforeFirstUnlock)
        #expect(try await device.denials.count == 1)
    }

    @Test("a daemon that others killed has told what it knew", .simulatedDevice())
    func killedByOthers() async throws {
        let device = SimulatedDevice.current
        try device.write("kept", to: "file")
        try await device.reboot()
        let pid = try #require(try device.daemonPID())
        try device.shell("cat file")
        #expect(try await device.denials.count == 1)
        #expect(Glibc.kill(pid, SIGKILL) == 0)
        #expect(try await device.denials.count == 1)
        try await device.restart()
        #expect(try await device.denials.count == 1)
    }

    @Test("out of space: ENOSPC, what is there stays, and it can be given back", .simulatedDevice())
    func outOfSpace() async throws {
        let device = SimulatedDevice.current
        try device.write(String(repeating: "x", count: 10_000), to: "file")
        try await device.runOutOfSpace()
        let error = #expect(throws: CocoaError.self) { try device.write("y", to: "new") }
        #expect(error?.code == .fileWriteOutOfSpace)
        #expect(try device.shell("head -c 100000 /dev/zero >>file") != 0)
        #expect(try device.shell("mkdir d") != 0)
        #expect(try device.shell("test $(stat -fc %a .) -eq 0") == 0)
        #expect(try device.read("file").hasPrefix("xxxx"))
        #expect(try device.shell("printf z | dd of=file conv=notrunc") == 0)
        try await device.lock(.now)
        try await device.unlock()
        #expect(try device.read("file").hasPrefix("zxxx"))
        try await device.makeSpace()
        try device.write("y", to: "new")
        #expect(try device.read("new") == "y")
    }

    @Test("who holds files, and that it vetoes nothing", .simulatedDevice())
    func holders() async throws {
        let device = SimulatedDevice.current
        try device.makeDirectory("A", of: .complete)
        try device.write("dear diary", to: "A/diary")
        let file = try FileHandle(forReadingFrom: URL(fileURLWithPath: device.file("A/diary")))
        let all = try await device.holders
        #expect(Set(all.map(\.path)) == ["/A/diary"])
        // While another test starts a process, that process has this one's descriptors until it
        // executes its program.
        let holders = all.filter { $0.pid == Int(getpid()) }
        #expect(holders.map(\.path) == ["/A/diary"])
        #expect(holders.first?.protectionClass == .complete)
        #expect(try await device.lock(.now) == .locked)
        try file.close()
    }

    @Test("ten side by side, each with a lock and files of its own")
    func sideBySide() async throws {
        let directories = try await withThrowingTaskGroup(of: String.self) { group in
            for number in 0..<10 {
                group.addTask {
                    try await withSimulatedDevice(passcode: "\(number)000") { device in
                        try device.write("\(number)", to: "file")
                        if number.isMultiple(of: 2) { try await device.reboot() }
                        #expect(
                            try await device.availability(
                                of: .completeUntilFirstUserAuthentication)
                                == !number.isMultiple(of: 2))
                        try await device.unlock("\(number)000")
                        #expect(try device.read("file") == "\(number)")
                        return Leaks.directory(of: device.path)
                    }
                }
            }
            return try await group.reduce(into: []) { $0.append($1) }
        }
        #expect(Set(directories).count == 10)
        for directory in directories { #expect(Leaks.of(directory).isEmpty) }
    }
}
