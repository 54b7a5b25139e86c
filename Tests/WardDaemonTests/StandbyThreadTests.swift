import Dispatch
import Synchronization
import Testing

@testable import WardDaemon

@Suite struct StandbyThreadTests {
    @Test("What hangs is left behind, and the next one has a thread")
    func hanging() {
        let standby = StandbyThread("test")
        defer { standby.stop() }
        let ran = Atomic<Int>(0)
        #expect(standby.run(timeout: .seconds(30)) { ran.add(1, ordering: .relaxed) })
        let hang = DispatchSemaphore(value: 0)
        #expect(!standby.run(timeout: .milliseconds(50)) { hang.wait() })
        #expect(standby.run(timeout: .seconds(30)) { ran.add(1, ordering: .relaxed) })
        hang.signal()
        for _ in 0..<100 {
            #expect(standby.run(timeout: .seconds(30)) { ran.add(1, ordering: .relaxed) })
        }
        #expect(ran.load(ordering: .relaxed) == 102, "one that came back late answers for itself")
    }
}
