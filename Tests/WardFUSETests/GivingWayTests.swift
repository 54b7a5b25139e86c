import CWardLinux
import Foundation
import Glibc
import Synchronization
import Testing
import WardSystem
import WardTestSupport

@testable import WardFUSE

/// Workers of FUSE over io_uring that let programs run first (decision 0068).
@Suite struct GivingWayTests {
    @Test("a worker gives way while requests come one after the other, but for a few")
    func serial() {
        var mix = ConcurrencyWindow()
        for _ in 1..<64 { mix.note(isShared: false) }
        #expect(!mix.isSerial)
        mix.note(isShared: false)
        #expect(mix.isSerial)
        // One request in eight comes beside others.
        for number in 0..<160 { mix.note(isShared: number % 8 == 0) }
        #expect(mix.isSerial)
        // One request in four.
        for number in 0..<16 { mix.note(isShared: number % 4 == 0) }
        #expect(!mix.isSerial)
        for number in 0..<6400 { mix.note(isShared: number % 16 == 0) }
        #expect(!mix.isSerial)
        for number in 0..<64 { mix.note(isShared: number % 32 == 0) }
        #expect(mix.isSerial)
    }

    @Test("that several programs ask at once is noticed at the fourth such request")
    func shared() {
        var mix = ConcurrencyWindow()
        for _ in 0..<64 { mix.note(isShared: false) }
        for _ in 0..<3 { mix.note(isShared: true) }
        #expect(mix.isSerial)
        mix.note(isShared: true)
        #expect(!mix.isSerial)
    }

    @Test("starved is who wanted to run from one look to the next and never did")
    func starved() {
        func use(_ isRunnable: Bool, _ nanoseconds: UInt64, _ turns: UInt64) -> ThreadUse {
            ThreadUse(isRunnable: isRunnable, nanoseconds: nanoseconds, turns: turns)
        }
        // Thread 1 waits for a CPU, 2 computes, 3 sleeps, 4 runs now and then, 5 can't be read.
        var uses: [Int32: ThreadUse] = [
            1: use(true, 10, 1), 2: use(true, 10, 1), 3: use(false, 10, 1), 4: use(true, 10, 1),
        ]
        var starvation = Starvation(intervalNanoseconds: 5_000_000)
        func find(_ threads: [Int32]) -> [Int32] {
            starvation.find(threads.map { ThreadSample(thread: $0, use: uses[$0]) })
        }
        #expect(find([1, 2, 3, 4, 5]) == [5])
        uses[2] = use(true, 11, 1)
        uses[4] = use(true, 10, 2)
        #expect(find([1, 2, 3, 4, 5]) == [1, 5])
        // A thread that the last look left out is not judged by an older look.
        #expect(find([2]) == [2])
        #expect(find([1, 2]) == [2])
        // Thread 2 waits for nearly all of the interval; thread 1 waits often, and as long as it
        // runs.
        let half = starvation.intervalNanoseconds / 2
        uses[2] = ThreadUse(
            isRunnable: false, nanoseconds: 11 + half / 8, waitedNanoseconds: half + 1, turns: 3)
        uses[1] = ThreadUse(
            isRunnable: true, nanoseconds: 10 + half, waitedNanoseconds: half + 1, turns: 300)
        #expect(find([1, 2]) == [2])
    }

    @Test("the pause gets longer while it is in vain, and short again after a good time")
    func pause() {
        var starvation = Starvation(intervalNanoseconds: 5_000_000)
        let first = ServingLimits.firstPauseNanoseconds
        var now = 100 * first
        var pauses: [UInt64] = []
        for _ in 0..<12 {
            pauses.append(starvation.pauseNanoseconds(at: now) / first)
            now += pauses.last! * first + first / 10
        }
        #expect(pauses == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 640, 640])
        #expect(640 * first == ServingLimits.longestPauseNanoseconds)
        now += 10000 * first
        #expect(starvation.pauseNanoseconds(at: now) == first)
    }

    @Test("what the system tells of a thread: it sleeps, or it runs, and how long it did")
    func threadUse() throws {
        let isEnding = Atomic<Bool>(false)
        let sleeper = Mutex<Int32>(0)
        let word = FutexWord()
        let thread = try SystemThread("sl) R ((R)") {
            sleeper.withLock { $0 = ward_gettid() }
            while !isEnding.load(ordering: .acquiring) { word.wait(while: 0) }
        }
        defer { thread.join() }
        defer {
            isEnding.store(true, ordering: .releasing)
            word.increment()
            word.wakeAll()
        }
        var use: ThreadUse?
        repeat {
            sched_yield()
            let number = sleeper.withLock { $0 }
            use = number == 0 ? nil : ThreadUse.read(ofThread: number)
        } while use?.isRunnable != false
        #expect(use!.turns > 0)
        let own = try #require(ThreadUse.read(ofThread: ward_gettid()))
        #expect(own.isRunnable && own.nanoseconds > 0)
        #expect(ThreadUse.read(ofThread: 0) == nil)
    }

    @Test("a thread that gives way starts others that don't, where it may", .onQuietMachine)
    func threads() throws {
        let mayUndo = Yielding.isPossible()
        try SystemThread("giving-way") {
            #expect(ward_give_way(1) == 0)
            #expect(sched_getscheduler(0) == idlePolicy)
            let other = try? SystemThread("other") {
                #expect(sched_getscheduler(0) == (mayUndo ? SCHED_OTHER : idlePolicy))
                #expect(ward_gives_way() == 0)
            }
            #expect(other != nil)
            other?.join()
        }.join()
    }

    /// `SCHED_IDLE` of linux/sched.h.
    private let idlePolicy: Int32 = 5

    /// A thread's I/O priority, as ionice(1) prints it.
    private func ioPriority(of thread: Int32) throws -> String {
        let ionice = Process()
        ionice.executableURL = URL(fileURLWithPath: "/usr/bin/ionice")
        ionice.arguments = ["-p", "\(thread)"]
        let output = Pipe()
        ionice.standardOutput = output
        try ionice.run()
        let text = try output.fileHandleForReading.readToEnd() ?? Data()
        ionice.waitUntilExit()
        return String(decoding: text, as: UTF8.self).trimmingCharacters(in: .newlines)
    }

    // A thread without an I/O priority of its own would get the class `idle` at the disk, which
    // waits for all others.
    @Test(
        "who gives way to programs keeps its place at the disk, the one it was given included",
        .onQuietMachine)
    func disk() throws {
        let niceness = getpriority(__priority_which_t(PRIO_PROCESS.rawValue), 0)
        let usual = "best-effort: prio \((niceness + 20) / 5)"
        for (given, kept) in [
            ([], usual), (["-c", "2", "-n", "7"], "best-effort: prio 7"), (["-c", "3"], "idle"),
        ] {
            let number = Atomic<Int32>(0)
            let isEnding = Atomic<Bool>(false)
            let thread = try SystemThread("at-the-disk") {
                number.store(ward_gettid(), ordering: .sequentiallyConsistent)
                while !isEnding.load(ordering: .sequentiallyConsistent) { usleep(1000) }
            }
            defer {
                isEnding.store(true, ordering: .sequentiallyConsistent)
                thread.join()
            }
            while number.load(ordering: .sequentiallyConsistent) == 0 { usleep(100) }
            let own = number.load(ordering: .sequentiallyConsistent)
            if given.isEmpty {
                // Skipped where these tests run with an I/O priority of their own.
                guard try ioPriority(of: own).hasPrefix("none") else { continue }
            } else {
                let ionice = try Process.run(
                    URL(fileURLWithPath: "/usr/bin/ionice"), arguments: given + ["-p", "\(own)"])
                ionice.waitUntilExit()
                #expect(ionice.terminationStatus == 0)
            }
            #expect(ward_make_give_way(own, 1) == 0 && ward_thread_gives_way(own) != 0)
            #expect(try ioPriority(of: own) == kept)
            // A thread that may not undo it gives way until it ends, which is soon here.
            if ward_make_give_way(own, 0) == 0 { #expect(try ioPriority(of: own) == kept) }
        }
    }

    @Test(
        "who gives way beside a program that does not stop computing is found, and runs again",
        .onQuietMachine)
    func beside() throws {
        guard Yielding.isPossible() else {
            // A worker that can't undo it, or can't be seen to starve, never gives way.
            try SystemThread("not-possible") {
                let isUndone = ward_give_way(1) == 0 && ward_give_way(0) == 0
                #expect(!isUndone || ThreadUse.read(ofThread: ward_gettid()) == nil)
            }.join()
            return
        }
        let isEnding = Atomic<Bool>(false)
        let cpu = Atomic<Int>(-1)
        let courteous = RingWorker(queues: [0])
        let other = RingWorker(queues: [0])
        let thread = try SystemThread("giving-way") {
            guard let own = (0..<8192).first(where: { ward_run_on_cpu(UInt32($0)) == 0 }),
                ward_give_way(1) == 0
            else { return cpu.store(-2, ordering: .releasing) }
            courteous.thread.store(ward_gettid(), ordering: .relaxed)
            courteous.yields.store(true, ordering: .sequentiallyConsistent)
            cpu.store(own, ordering: .releasing)
            while !isEnding.load(ordering: .relaxed) {}
        }
        while cpu.load(ordering: .acquiring) == -1 { sched_yield() }
        let computing = try (0..<4).map { _ in
            try SystemThread("computing") {
                #expect(ward_run_on_cpu(UInt32(max(0, cpu.load(ordering: .acquiring)))) == 0)
                while !isEnding.load(ordering: .relaxed) {}
            }
        }
        defer {
            isEnding.store(true, ordering: .relaxed)
            for thread in computing + [thread] { thread.join() }
        }
        try #require(cpu.load(ordering: .acquiring) >= 0)
        let share = RingShare(device: -1, queues: 1)
        share.mayYield.store(true, ordering: .relaxed)
        let watch = RingWatch(share, workers: { [courteous, other] }, needOthers: { _ in })
        var policy = ServingPolicy(machine: share.machine)
        let now = SystemClock.nanoseconds()
        let number = courteous.thread.load(ordering: .relaxed)
        while ward_thread_gives_way(number) != 0 {
            usleep(UInt32(share.machine.starvationNanoseconds / 1000))
            watch.endStarvation(&policy, now)
        }
        #expect(sched_getscheduler(number) == SCHED_OTHER)
        let givesWay = courteous.yields.load(ordering: .sequentiallyConsistent)
        #expect(!givesWay)
        // No worker of this connection gives way again at once.
        let from = share.notBefore.load(ordering: .relaxed)
        #expect(from == now + ServingLimits.firstPauseNanoseconds)
        let before = try #require(ThreadUse.read(ofThread: number))
        while ThreadUse.read(ofThread: number)?.nanoseconds == before.nanoseconds { usleep(1000) }
    }
}
