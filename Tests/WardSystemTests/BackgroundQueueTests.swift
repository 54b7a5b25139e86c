import Glibc
import Synchronization
import Testing

@testable import WardSystem

@Suite struct BackgroundQueueTests {
    @Test("Where no thread can be started closures wait, and the process goes on")
    func noThread() {
        let mayStart = Atomic<Bool>(false)
        let queue = BackgroundQueue(name: "test") { name, body in
            guard mayStart.load(ordering: .relaxed) else { throw Errno(rawValue: EAGAIN) }
            return try SystemThread(name, body)
        }
        let ran = Atomic<Int>(0)
        queue.run { ran.add(1, ordering: .relaxed) }
        queue.nudge()
        #expect(ran.load(ordering: .relaxed) == 0)
        queue.drain()
        #expect(ran.load(ordering: .relaxed) == 1, "without a thread `drain` runs it")

        queue.run { ran.add(1, ordering: .relaxed) }
        mayStart.store(true, ordering: .relaxed)
        queue.nudge()
        for _ in 0..<1000 where ran.load(ordering: .relaxed) < 2 { usleep(10_000) }
        #expect(ran.load(ordering: .relaxed) == 2, "it runs once there can be threads again")
        queue.run { ran.add(1, ordering: .relaxed) }
        queue.drain()
        #expect(ran.load(ordering: .relaxed) == 3)
    }
}
