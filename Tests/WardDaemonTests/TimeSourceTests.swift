import Synchronization
import Testing
import WardSystem

@testable import WardDaemon

@Suite struct TimeSourceTests {
    @Test("The timer's thread sees each alarm, sleeps through a cancelled one, and ends when asked")
    func alarms() throws {
        let time = SystemTime()
        let due = WakeWord()
        let count = Atomic(0)
        let thread = try SystemThread("test") {
            while time.awaitAlarm() {
                count.add(1, ordering: .relaxed)
                due.signal()
            }
        }
        for _ in 0..<3 {
            time.setAlarm(at: time.now + .milliseconds(1))
            due.wait()
        }
        time.setAlarm(at: time.now - .seconds(1))
        due.wait()
        time.setAlarm(at: time.now + .seconds(3600))
        time.setAlarm(at: nil)
        time.endAlarms()
        thread.join()
        #expect(count.load(ordering: .relaxed) == 4)
        #expect(!time.awaitAlarm())
    }

    @Test("a manual clock has no alarm to wait for")
    func manual() {
        let time = ManualTime()
        time.setAlarm(at: .zero)
        #expect(!time.awaitAlarm())
    }
}
