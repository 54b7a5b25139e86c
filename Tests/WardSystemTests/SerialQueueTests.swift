import Glibc
import Synchronization
import Testing

@testable import WardSystem

@Suite struct SerialQueueTests {
    /// The numbers that jobs noted, in order.
    private final class Notes: Sendable {
        private let numbers = Mutex<[Int]>([])
        var all: [Int] { numbers.withLock { $0 } }
        func add(_ number: Int) { numbers.withLock { $0.append(number) } }
    }

    /// A job that runs until it is released.
    private final class LongJob: Sendable {
        private let hasStarted = WakeWord()
        private let mayEnd = WakeWord()

        /// Adds the job and waits until it runs.
        func start(on queue: SerialQueue) {
            #expect(queue.add(body))
            hasStarted.wait()
        }

        func release() { mayEnd.signal() }

        private func body() {
            hasStarted.signal()
            mayEnd.wait()
        }
    }

    /// Starts threads while it may, and counts them.
    private final class Threads: Sendable {
        let mayStart = Atomic(true)
        let started = Atomic(0)
        let hasEnded = WakeWord()

        func start(_ body: @escaping SerialQueue.Job) -> Bool {
            guard mayStart.load(ordering: .relaxed) else { return false }
            started.add(1, ordering: .relaxed)
            SystemThread.startDetached("test") { [self] in
                body()
                hasEnded.signal()
            }
            return true
        }
    }

    @Test("jobs run in order, one at a time", arguments: [SerialQueue.Start.atOnce, .onDemand])
    func order(_ starts: SerialQueue.Start) {
        let queue = SerialQueue("test", starts: starts)
        let notes = Notes()
        let running = Atomic(0)
        let most = Atomic(0)
        for number in 0..<1000 {
            queue.add {
                most.max(running.add(1, ordering: .relaxed).newValue, ordering: .relaxed)
                notes.add(number)
                running.subtract(1, ordering: .relaxed)
            }
        }
        queue.drain()
        #expect(notes.all == Array(0..<1000))
        #expect(most.load(ordering: .relaxed) == 1)
        queue.end()
    }

    @Test("no more jobs wait than the limit allows, without the job that runs")
    func limit() {
        let queue = SerialQueue("test", limit: 2, starts: .atOnce)
        let notes = Notes()
        let long = LongJob()
        long.start(on: queue)
        #expect(queue.add { notes.add(1) })
        #expect(queue.add { notes.add(2) })
        #expect(!queue.add { notes.add(3) })
        #expect(queue.add(always: true) { notes.add(4) })
        #expect(!queue.add { notes.add(5) })
        long.release()
        queue.drain()
        #expect(queue.add { notes.add(6) }, "there is room again")
        queue.end()
        #expect(notes.all == [1, 2, 4, 6])
    }

    @Test("discarded jobs never run, and those added later do")
    func discarding() {
        let queue = SerialQueue("test", starts: .atOnce)
        let notes = Notes()
        let long = LongJob()
        long.start(on: queue)
        queue.add { notes.add(1) }
        queue.discardWaiting()
        queue.add { notes.add(2) }
        long.release()
        queue.end()
        #expect(notes.all == [2])
    }

    @Test(
        "An end while a job runs: all jobs taken before are done, and none is taken after",
        arguments: [SerialQueue.Start.atOnce, .onDemand])
    func endDuringJob(_ starts: SerialQueue.Start) {
        let queue = SerialQueue("test", starts: starts)
        let hasStarted = WakeWord()
        let taken = Atomic(0)
        let done = Atomic(0)
        queue.add {
            hasStarted.signal()
            // Until the queue has ended.
            while queue.add({ done.add(1, ordering: .relaxed) }) {
                taken.add(1, ordering: .relaxed)
                usleep(1000)
            }
        }
        hasStarted.wait()
        queue.end()
        #expect(done.load(ordering: .relaxed) == taken.load(ordering: .relaxed))
        #expect(!queue.add { done.add(1, ordering: .relaxed) })
        #expect(!queue.add(always: true) { done.add(1, ordering: .relaxed) })
        queue.end()
        queue.drain()
        #expect(done.load(ordering: .relaxed) == taken.load(ordering: .relaxed))
    }

    @Test("A job that ends its queue does not wait for itself, and the jobs after it are done")
    func endInJob() {
        let queue = SerialQueue("test", starts: .atOnce)
        let notes = Notes()
        let long = LongJob()
        long.start(on: queue)
        queue.add {
            queue.end()
            notes.add(1)
        }
        queue.add { notes.add(2) }
        long.release()
        queue.drain()
        #expect(notes.all == [1, 2])
        #expect(!queue.add { notes.add(3) })
        queue.end()
    }

    @Test("a queue that never had a job ends")
    func endWithoutJob() {
        SerialQueue("test").end()
        SerialQueue("test", starts: .atOnce).end()
    }

    @Test("Without a thread jobs wait: for the next try, or for a thread that drains the queue")
    func withoutThread() {
        let threads = Threads()
        let queue = SerialQueue(limit: .max, starts: .onDemand) { threads.start($0) }
        let notes = Notes()
        let ran = WakeWord()
        threads.mayStart.store(false, ordering: .relaxed)
        #expect(queue.add { notes.add(1) })
        #expect(!queue.add(needsThread: true) { notes.add(2) })
        queue.retry()
        #expect(notes.all == [])
        queue.drain()
        #expect(notes.all == [1])

        #expect(
            queue.add {
                notes.add(3)
                ran.signal()
            })
        threads.mayStart.store(true, ordering: .relaxed)
        queue.retry()
        ran.wait()
        #expect(queue.add(needsThread: true) { notes.add(4) })
        queue.end()
        #expect(notes.all == [1, 3, 4])
        #expect(threads.started.load(ordering: .relaxed) == 1)
    }

    @Test("a queue without a thread does its jobs at its end")
    func endWithoutThread() {
        let queue = SerialQueue(limit: .max, starts: .onDemand) { _ in false }
        let notes = Notes()
        for number in 0..<3 { queue.add { notes.add(number) } }
        queue.end()
        #expect(notes.all == [0, 1, 2])
    }

    @Test("an idle thread ends, and the next job starts another")
    func idle() {
        let threads = Threads()
        let queue = SerialQueue(
            limit: .max, starts: .onDemand, longestIdleTime: .milliseconds(1)
        ) { threads.start($0) }
        let notes = Notes()
        for number in 1...3 {
            queue.add { notes.add(number) }
            threads.hasEnded.wait()
            #expect(threads.started.load(ordering: .relaxed) == number)
        }
        #expect(notes.all == [1, 2, 3])
        queue.end()
    }
}

@Suite struct FutexWordTests {
    @Test("A wait ends with the signal after which its condition holds, or at its deadline")
    func condition() throws {
        let word = FutexWord()
        let count = Atomic(0)
        let thread = try SystemThread("test") {
            for _ in 0..<100 {
                count.add(1, ordering: .relaxed)
                word.signalAll()
            }
        }
        #expect(word.wait { count.load(ordering: .relaxed) == 100 })
        thread.join()
        #expect(!word.wait(deadline: SystemClock.monotonic() + .milliseconds(1)) { false })
        #expect(word.wait(deadline: .zero) { true }, "a condition that holds needs no time")
    }

    @Test("a wait with a pause sees what changes without a signal")
    func pause() throws {
        let word = FutexWord()
        let asked = Atomic(0)
        #expect(
            word.wait(lookingEvery: .milliseconds(1)) {
                asked.add(1, ordering: .relaxed).newValue == 3
            })
    }
}
