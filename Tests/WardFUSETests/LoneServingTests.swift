import CWardLinux
import Glibc
import Synchronization
import Testing
import WardSystem

@testable import WardFUSE

/// One worker serves alone while it keeps up; the others come back when it does not.
@Suite struct LoneServingTests {
    /// Starts worker `number`, which rests; `isBack` is set when `rest` returns.
    private func resting(
        _ alone: SoleWorker, _ number: Int, _ isBack: Flag,
        isAnotherThere: @escaping @Sendable () -> Bool = { true }
    ) throws -> SystemThread {
        try SystemThread("rests") {
            while alone.isServedByOther(than: number) {
                alone.rest(number, isAnotherThere: isAnotherThere)
            }
            isBack.value.store(true, ordering: .sequentiallyConsistent)
        }
    }

    /// Starts workers 1 to `count`, which rest.
    private func resting(_ alone: SoleWorker, count: Int) throws -> ([SystemThread], [Flag]) {
        let flags = (0..<count).map { _ in Flag() }
        let threads = try flags.enumerated().map { try resting(alone, $0.offset + 1, $0.element) }
        return (threads, flags)
    }

    private final class Flag: Sendable {
        let value = Atomic<Bool>(false)
        var isSet: Bool { value.load(ordering: .sequentiallyConsistent) }
    }

    private final class Looks: Sendable {
        let count = Atomic<Int>(0)
    }

    @Test("One at a time; whoever serves alone is not kept from the device")
    func oneAtATime() {
        let alone = SoleWorker()
        #expect(!alone.isServedByOther(than: 0))
        #expect(alone.begin(0))
        #expect(!alone.begin(1))
        #expect(alone.isServed(by: 0) && !alone.isServedByOther(than: 0))
        #expect(alone.isServedByOther(than: 1))
        // Neither worker waits.
        alone.rest(0) { true }
        alone.end()
        alone.rest(1) { true }
        #expect(!alone.isServed(by: 0) && !alone.isServedByOther(than: 1))
        #expect(alone.begin(1))
        alone.end()
        alone.end()
        #expect(alone.begin(0))
        alone.end()
    }

    @Test("The end brings all back, whoever rests")
    func end() throws {
        let alone = SoleWorker()
        #expect(alone.begin(0))
        let (threads, flags) = try resting(alone, count: 4)
        alone.end()
        for thread in threads { thread.join() }
        #expect(flags.allSatisfy { $0.isSet })
        #expect(!alone.isServed(by: 0))
    }

    @Test("Whoever takes long is left alone until another request waits")
    func long() throws {
        let alone = SoleWorker()
        #expect(alone.begin(0))
        alone.noteBeat(isServing: true)
        let looks = Looks()
        let isAnotherThere = Flag()
        let isBack = Flag()
        let thread = try resting(alone, 1, isBack) {
            looks.count.add(1, ordering: .relaxed)
            return isAnotherThere.isSet
        }
        while looks.count.load(ordering: .relaxed) < 20, !isBack.isSet { usleep(1000) }
        #expect(alone.isServed(by: 0) && !isBack.isSet)
        isAnotherThere.value.store(true, ordering: .sequentiallyConsistent)
        thread.join()
        #expect(!alone.isServed(by: 0))
    }

    @Test(
        "A request that is not answered while another one waits brings all back; who hung finds out"
    )
    func stuck() throws {
        let alone = SoleWorker()
        #expect(alone.begin(0))
        alone.noteBeat(isServing: true)
        let (threads, _) = try resting(alone, count: 3)
        // The worker on watch ends it; no thread calls `end`.
        for thread in threads { thread.join() }
        #expect(!alone.isServed(by: 0))
    }

    @Test("Where nothing comes any more all go back to the device")
    func idle() throws {
        let alone = SoleWorker()
        #expect(alone.begin(0))
        alone.noteBeat(isServing: true)
        alone.noteBeat(isServing: false)
        let thread = try resting(alone, 1, Flag())
        thread.join()
        #expect(!alone.isServed(by: 0))
    }

    @Test("Who keeps up is left alone, whatever the others' threads do")
    func keepsUp() throws {
        let alone = SoleWorker()
        #expect(alone.begin(0))
        let flag = Flag()
        let thread = try resting(alone, 1, flag)
        // At least one beat for each look of the watch, because this thread does nothing else. A
        // pause of this machine looks like a stall, so the test measures its own pauses.
        var longest: UInt64 = 0
        var last = SystemClock.nanoseconds()
        let begin = last
        while last - begin < 20_000_000, !flag.isSet {
            alone.noteBeat(isServing: true)
            alone.noteBeat(isServing: false)
            let now = SystemClock.nanoseconds()
            longest = max(longest, now - last)
            last = now
        }
        #expect(!flag.isSet || longest > 500_000)
        alone.end()
        thread.join()
    }

    @Test("A thread that sleeps at the device is sent away")
    func sentAway() throws {
        let alone = SoleWorker()
        var ends: [Int32] = [0, 0]
        #expect(pipe(&ends) == 0)
        defer { ends.forEach { _ = close($0) } }
        let device = ends[0]
        let isAway = Flag()
        let thread = try SystemThread("sleeps") {
            var byte: UInt8 = 0
            let isInterrupted = alone.whileAtDevice(1) {
                read(device, &byte, 1) == -1 && errno == EINTR
            }
            isAway.value.store(isInterrupted, ordering: .sequentiallyConsistent)
        }
        #expect(alone.begin(0))
        // A signal that comes before the system call is lost, as at a real device: send it again.
        while !isAway.isSet {
            alone.sendOthersAway(0)
            usleep(100)
        }
        thread.join()
        alone.end()
    }

    // MARK: SoleWorkerScore

    /// Serves `count` requests in a row, each `nanoseconds` long.
    private func serve(
        _ pace: inout SoleWorkerScore, _ count: Int, waits: Waits = Waits(),
        nanoseconds: UInt64 = 5_000,
        hadWaited: Bool = false, isSync: Bool = false, isLarge: Bool = false,
        during body: () -> Void = {}
    ) {
        for _ in 0..<count {
            pace.begin(
                1_000_000, hadWaited: hadWaited, isSync: isSync, isLarge: isLarge,
                waits: pace.needsWaits ? waits.read() : 0)
            body()
            if pace.end(1_000_000 + nanoseconds) { pace.noteWaits(waits.read()) }
        }
    }

    /// Counts how often the thread slept, and how often it was asked.
    private final class Waits: Sendable {
        let count = Atomic<Int>(0)
        let asked = Atomic<Int>(0)

        func read() -> Int {
            asked.add(1, ordering: .relaxed)
            return count.load(ordering: .relaxed)
        }

        func wait() { count.add(1, ordering: .relaxed) }
    }

    @Test(
        "Quick requests one after the other suffice for one worker; a slow one now and then does not change that"
    )
    func quickRequests() {
        var pace = SoleWorkerScore()
        #expect(!pace.sufficesAlone)
        serve(&pace, 63)
        #expect(!pace.sufficesAlone)
        serve(&pace, 1)
        #expect(pace.sufficesAlone)
        serve(&pace, 1000)
        serve(&pace, 1, nanoseconds: 1_000_000)
        #expect(pace.sufficesAlone && !pace.needsOthers)
    }

    @Test("A request that may have waited for a disk is told from others, until the next one")
    func slowRequest() {
        var pace = SoleWorkerScore()
        #expect(!pace.wasSlow)
        serve(&pace, 1, nanoseconds: 39_000)
        #expect(!pace.wasSlow)
        serve(&pace, 1, nanoseconds: 40_000)
        #expect(pace.wasSlow)
        serve(&pace, 1)
        #expect(!pace.wasSlow)
    }

    @Test("Slow requests, and a queue that grows longer than it is served, need the others")
    func slowRequests() {
        let waits = Waits()
        var pace = SoleWorkerScore()
        serve(&pace, 1000, waits: waits)
        serve(&pace, 8, waits: waits, nanoseconds: 100_000) { waits.wait() }
        #expect(pace.needsOthers)
        serve(&pace, 1000, waits: waits)
        #expect(pace.sufficesAlone)
        // Each request was there before the worker asked for it. Eight of them are too few to
        // conclude.
        serve(&pace, 8, waits: waits, hadWaited: true)
        #expect(pace.sufficesAlone)
        serve(&pace, 8, waits: waits, hadWaited: true)
        #expect(pace.needsOthers)
    }

    @Test(
        "On a slow machine one worker suffices, too: for requests that were seen to wait for nothing"
    )
    func slowMachine() {
        let waits = Waits()
        var pace = SoleWorkerScore()
        serve(&pace, 70, waits: waits, nanoseconds: 150_000)
        #expect(pace.sufficesAlone && !pace.wasSlow)
        // But requests that others could do a part of, that take half a millisecond, or that queue
        // need the others.
        for isLarge in [true, false] {
            var pace = pace
            serve(
                &pace, 8, waits: waits, nanoseconds: isLarge ? 150_000 : 500_000, isLarge: isLarge)
            #expect(pace.needsOthers && pace.wasSlow)
        }
        var queue = pace
        serve(&queue, 16, waits: waits, nanoseconds: 150_000, hadWaited: true)
        #expect(queue.needsOthers)
        serve(&pace, 8, waits: waits, nanoseconds: 150_000) { waits.wait() }
        #expect(pace.needsOthers && pace.wasSlow)
    }

    @Test("It is hardly asked whether a request waits where none is slow, and where all do")
    func asksSeldom() {
        let waits = Waits()
        var pace = SoleWorkerScore()
        serve(&pace, 1000, waits: waits)
        #expect(waits.asked.load(ordering: .relaxed) == 0)
        serve(&pace, 1000, waits: waits, nanoseconds: 150_000) { waits.wait() }
        #expect((2...2 * 1000 / 16).contains(waits.asked.load(ordering: .relaxed)))
        // After the last slow request the count is read for a few more.
        serve(&pace, 100, waits: waits, nanoseconds: 150_000)
        #expect(pace.sufficesAlone)
        serve(&pace, 64, waits: waits)
        let asked = waits.asked.load(ordering: .relaxed)
        serve(&pace, 1000, waits: waits)
        #expect(waits.asked.load(ordering: .relaxed) == asked)
    }

    @Test("What the kernel counts as waiting: sleeping is, computing isn't")
    func kernelCounts() throws {
        let counts = Mutex<[Int]>([])
        try SystemThread("test") {
            let before = ward_voluntary_switches()
            var sum: UInt64 = 0
            for number: UInt64 in 0..<100_000 { sum &+= number ^ sum }
            let computed = ward_voluntary_switches() &+ Int(sum & 0)
            usleep(1)
            counts.withLock { $0 = [before, computed, ward_voluntary_switches()] }
        }.join()
        let (before, computed, slept) = counts.withLock { ($0[0], $0[1], $0[2]) }
        #expect(computed == before)
        #expect(slept > before)
    }

    @Test("Who syncs now and then is served by one worker, and who does every few requests by all")
    func syncs() {
        for (quick, isAlone) in [(1, false), (4, false), (5, true), (30, true)] {
            var pace = SoleWorkerScore()
            for _ in 0..<200 {
                serve(&pace, quick)
                serve(&pace, 1, nanoseconds: 5_000_000, isSync: true)
                #expect(pace.wasSlow)
            }
            #expect(pace.sufficesAlone == isAlone, "\(quick)")
        }
        // Many syncs need the others, however quickly each was handed to another thread.
        var pace = SoleWorkerScore()
        serve(&pace, 1000)
        serve(&pace, 100, isSync: true)
        #expect(pace.needsOthers)
    }

    // MARK: RecentPrograms

    @Test("Programs of the last eight requests, each once; the kernel is none")
    func programs() {
        var programs = RecentPrograms()
        #expect(programs.count == 0)
        for _ in 0..<20 { programs.note(7, at: 1) }
        programs.note(0, at: 1)
        #expect(programs.count == 1)
        for program: UInt32 in 1...4 { programs.note(program, at: 1) }
        #expect(programs.count == 5)
        for program: UInt32 in 1...8 { programs.note(program, at: 1) }
        #expect(programs.count == 8)
        for _ in 0..<8 { programs.note(3, at: 1) }
        #expect(programs.count == 1)
    }

    @Test("Two programs take turns; one of them twice, and three, do not")
    func turns() {
        var programs = RecentPrograms()
        programs.note(7, at: 1)
        for _ in 0..<4 {
            programs.note(8, at: 1)
            #expect(programs.takesTurns)
            programs.note(7, at: 1)
            #expect(programs.takesTurns)
        }
        programs.note(7, at: 1)
        #expect(!programs.takesTurns)
        for program: UInt32 in [8, 7, 9] { programs.note(program, at: 1) }
        for program: UInt32 in [7, 8, 7, 8, 7, 8] {
            programs.note(program, at: 1)
            #expect(!programs.takesTurns, "the third one is not long ago")
        }
        for program: UInt32 in [7, 8] { programs.note(program, at: 1) }
        #expect(programs.takesTurns)
    }

    @Test("One program is one after a while without another, which the kernel is not")
    func oneProgram() {
        let period = ServingLimits.oneProgramNanoseconds
        var programs = RecentPrograms()
        programs.note(7, at: 1000)
        #expect(!programs.isOne, "nobody knows yet")
        programs.note(7, at: 999 + period)
        #expect(!programs.isOne)
        programs.note(0, at: 1000 + period)
        #expect(!programs.isOne)
        programs.note(7, at: 1000 + period)
        #expect(programs.isOne)
        programs.note(8, at: 1001 + period)
        #expect(!programs.isOne)
        programs.note(8, at: 1001 + 2 * period)
        #expect(programs.isOne)
        // Programs of another process namespace all have the number 0 and count as several.
        var strangers = RecentPrograms()
        for time in 0..<10 as Range<UInt64> { strangers.note(0, at: time * period) }
        #expect(!strangers.isOne)
        strangers.startAfresh(at: 10 * period)
        strangers.note(0, at: 20 * period)
        #expect(!strangers.isOne)
        // A worker that begins to serve alone did not see the requests that others served.
        programs.startAfresh(at: 1001 + 2 * period)
        #expect(!programs.isOne)
        programs.note(8, at: 1001 + 3 * period)
        #expect(programs.isOne)
    }
}
