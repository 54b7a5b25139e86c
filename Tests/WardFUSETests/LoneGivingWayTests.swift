import CWardLinux
import Foundation
import Glibc
import Synchronization
import Testing
import WardSystem
import WardTestSupport

@testable import WardFUSE

/// The worker that serves alone gives way to the program that asks, and follows it to its CPU
/// (decision 0071).
@Suite(.onQuietMachine) struct LoneGivingWayTests {
    /// `SCHED_IDLE` of linux/sched.h.
    private static let idlePolicy: Int32 = 5

    /// Two workers: one serves alone without a pause and wants to give way; the other rests, and so
    /// is on watch.
    private final class Serving: Sendable {
        let alone: SoleWorker
        let thread = Atomic<Int32>(0)
        let wants = Atomic<Bool>(true)
        let served = Atomic<UInt64>(0)
        /// The worker that serves stays at its current request.
        let isHeld = Atomic<Bool>(false)
        let isAnotherThere = Atomic<Bool>(true)
        /// The CPU that the worker binds itself to while it gives way; -1: none.
        let bindsTo = Atomic<Int>(-1)
        private let isEnding = Atomic<Bool>(false)

        /// With the default `use` the worker never starves, however busy this machine is.
        init(
            use: @escaping @Sendable (Int32) -> ThreadUse? = { _ in
                ThreadUse(isRunnable: false, nanoseconds: 0, turns: 0)
            }
        ) {
            // Ten seconds: on a busy machine a test's worker may be freed twice within a shorter
            // time.
            alone = SoleWorker(freedNanoseconds: 10_000_000_000, use: use)
        }

        /// `cpu`: where the worker that serves runs; nil: anywhere.
        func run(cpu: UInt32? = nil, _ body: () throws -> Void) throws {
            alone.mayYield.store(Yielding.isPossible(), ordering: .sequentiallyConsistent)
            let owner = try SystemThread("serves") { [self] in
                thread.store(ward_gettid(), ordering: .sequentiallyConsistent)
                while !isEnding.load(ordering: .relaxed) {
                    // A pause of this machine ends the serving alone.
                    if !alone.isServed(by: 0) { _ = alone.begin(0) }
                    alone.wishesToYield.store(wants.load(ordering: .relaxed), ordering: .relaxed)
                    alone.noteBeat(isServing: true)
                    if served.load(ordering: .relaxed) % 256 == 0 {
                        // Repeated, because the end of a turn undoes the binding.
                        if let cpu { #expect(ward_run_on_cpu(cpu) == 0) }
                        let bindsTo = bindsTo.load(ordering: .relaxed)
                        if bindsTo >= 0 { _ = alone.bindOwner(to: UInt32(bindsTo)) }
                    }
                    while isHeld.load(ordering: .relaxed) { usleep(100) }
                    alone.noteBeat(isServing: false)
                    served.add(1, ordering: .relaxed)
                }
                alone.end()
            }
            let rester = try SystemThread("rests") { [self] in
                while !isEnding.load(ordering: .relaxed) {
                    alone.rest(1) { [self] in isAnotherThere.load(ordering: .relaxed) }
                    usleep(100)
                }
            }
            defer {
                isEnding.store(true, ordering: .sequentiallyConsistent)
                owner.join()
                rester.join()
            }
            while thread.load(ordering: .sequentiallyConsistent) == 0 { usleep(100) }
            try body()
        }

        var policy: Int32 { sched_getscheduler(thread.load(ordering: .sequentiallyConsistent)) }

        /// The CPUs that the serving worker may run on, as proc(5) lists them.
        var cpus: String {
            let thread = thread.load(ordering: .sequentiallyConsistent)
            let status = try? String(
                contentsOfFile: "/proc/self/task/\(thread)/status", encoding: .utf8)
            let line = status?.split(separator: "\n").first {
                $0.hasPrefix("Cpus_allowed_list:")
            }
            return line.map(String.init) ?? ""
        }

        /// Pauses as a lock does, but tries until it succeeds: on a busy machine the serving worker
        /// may be kept from running.
        func pauseForAnHour() {
            while !alone.pauseYielding(nanoseconds: 3_600_000_000_000) {}
        }

        /// Waits up to ten seconds: a thread that waited for the worker while it bound itself may
        /// still be about to free it.
        func isOrdinary(on cpus: String) -> Bool {
            for _ in 0..<10_000 {
                if self.cpus == cpus { return policy == SCHED_OTHER }
                usleep(1000)
            }
            return false
        }

        func wait(untilGivingWay: Bool) {
            while (policy == idlePolicy) != untilGivingWay { usleep(200) }
        }
    }

    @Test("while it wants to; where nobody may, nobody does")
    func wants() throws {
        let serving = Serving()
        try serving.run {
            guard Yielding.isPossible() else {
                usleep(20_000)
                #expect(serving.policy != Self.idlePolicy)
                return
            }
            serving.wait(untilGivingWay: true)
            serving.wants.store(false, ordering: .relaxed)
            serving.wait(untilGivingWay: false)
            while serving.alone.turn.load(ordering: .relaxed) & 1 == 1 { usleep(200) }
            serving.wants.store(true, ordering: .relaxed)
            serving.wait(untilGivingWay: true)
        }
    }

    @Test("when nobody serves alone any more it is an ordinary thread")
    func ends() throws {
        guard Yielding.isPossible() else { return }
        let serving = Serving()
        try serving.run { serving.wait(untilGivingWay: true) }
        let turn = serving.alone.turn.load(ordering: .sequentiallyConsistent)
        #expect(turn & 1 == 0)
        // An owner that sleeps, as at the device, so that it never calls `end`.
        let alone = SoleWorker()
        alone.mayYield.store(true, ordering: .relaxed)
        let isEnding = Atomic<Bool>(false)
        let number = Atomic<Int32>(0)
        let owner = try SystemThread("sleeps") {
            #expect(alone.begin(0))
            alone.wishesToYield.store(true, ordering: .relaxed)
            number.store(ward_gettid(), ordering: .sequentiallyConsistent)
            while !isEnding.load(ordering: .relaxed) { usleep(1000) }
        }
        while number.load(ordering: .sequentiallyConsistent) == 0 { usleep(100) }
        // `rest` returns when the watch ends, because no request comes.
        alone.rest(1) { true }
        #expect(!alone.isServed(by: 0))
        #expect(sched_getscheduler(number.load(ordering: .relaxed)) == SCHED_OTHER)
        isEnding.store(true, ordering: .relaxed)
        owner.join()
    }

    @Test("from the beginning of a lock nobody gives way for a while")
    func lock() throws {
        guard Yielding.isPossible() else { return }
        let serving = Serving()
        try serving.run {
            serving.wait(untilGivingWay: true)
            serving.pauseForAnHour()
            #expect(serving.policy == SCHED_OTHER)
            let served = serving.served.load(ordering: .relaxed)
            // Beside other tests that compute, up to ten seconds may pass before it runs.
            for look in 0..<10_000 {
                usleep(1000)
                #expect(serving.policy == SCHED_OTHER)
                if look >= 50, serving.served.load(ordering: .relaxed) > served { break }
            }
            #expect(serving.served.load(ordering: .relaxed) > served)
        }
    }

    @Test("with the end of giving way that of the binding comes, and no other follows")
    func unbinds() throws {
        guard Yielding.isPossible(), let cpu = Self.cpu else { return }
        for _ in 0..<20 {
            let serving = Serving()
            try serving.run {
                let all = serving.cpus
                serving.bindsTo.store(Int(cpu), ordering: .relaxed)
                serving.wait(untilGivingWay: true)
                while serving.cpus == all { usleep(100) }
                serving.pauseForAnHour()
                #expect(serving.policy == SCHED_OTHER)
                #expect(serving.isOrdinary(on: all))
                let served = serving.served.load(ordering: .relaxed)
                while serving.served.load(ordering: .relaxed) < served &+ 1000 { usleep(100) }
                #expect(serving.policy == SCHED_OTHER)
                #expect(serving.isOrdinary(on: all))
            }
        }
    }

    /// The first CPU that this process may use, if there are several.
    private static let cpu: UInt32? = {
        let cpus = (0..<8192 as Range<UInt32>).filter { ward_may_run_on_cpu($0) != 0 }
        return cpus.count > 1 ? cpus.first : nil
    }()

    /// Runs `body` while four threads compute on `cpu`.
    private func whileComputing(on cpu: UInt32, _ body: () -> Void) throws {
        let isEnding = Atomic<Bool>(false)
        let computing = try (0..<4).map { _ in
            try SystemThread("computing") {
                #expect(ward_run_on_cpu(cpu) == 0)
                while !isEnding.load(ordering: .relaxed) {}
            }
        }
        defer {
            isEnding.store(true, ordering: .relaxed)
            for thread in computing { thread.join() }
        }
        body()
    }

    @Test("beside a program that does not stop computing it is an ordinary thread again")
    func starved() throws {
        guard Yielding.isPossible(), let cpu = Self.cpu else { return }
        let serving = Serving(use: ThreadUse.read(ofThread:))
        try serving.run(cpu: cpu) {
            serving.wait(untilGivingWay: true)
            try whileComputing(on: cpu) {
                while !serving.alone.hasStarved { usleep(1000) }
                serving.wait(untilGivingWay: false)
                let served = serving.served.load(ordering: .relaxed)
                while serving.served.load(ordering: .relaxed) == served { usleep(1000) }
            }
        }
    }

    @Test(
        "kept from running at a request that nobody waits behind it is freed, and gives way again only after it; the second time soon after is starvation"
    )
    func freed() throws {
        guard Yielding.isPossible() else { return }
        let isRunnable = Atomic<Bool>(false)
        let runs = Atomic<Bool>(false)
        let looks = Atomic<UInt64>(0)
        // The thread runs a little at each look, so its CPU time is no sign of starvation.
        let serving = Serving { _ in
            let look = looks.add(1, ordering: .relaxed).newValue
            return ThreadUse(
                isRunnable: isRunnable.load(ordering: .relaxed),
                nanoseconds: runs.load(ordering: .relaxed) ? SystemClock.nanoseconds() : look,
                turns: look)
        }
        serving.isAnotherThere.store(false, ordering: .relaxed)
        try serving.run {
            /// Returns false if a pause of this machine had ended the watch.
            func isFreed() -> Bool {
                serving.wait(untilGivingWay: true)
                serving.isHeld.store(true, ordering: .relaxed)
                defer { serving.isHeld.store(false, ordering: .relaxed) }
                // While it sleeps, as at a disk, or runs, it is left alone.
                for isRunning in [false, true] {
                    runs.store(isRunning, ordering: .relaxed)
                    isRunnable.store(isRunning, ordering: .relaxed)
                    let before = looks.load(ordering: .relaxed)
                    while looks.load(ordering: .relaxed) < before + 3 {
                        guard serving.policy == Self.idlePolicy else {
                            isRunnable.store(false, ordering: .relaxed)
                            return false
                        }
                        usleep(100)
                    }
                }
                runs.store(false, ordering: .relaxed)
                serving.wait(untilGivingWay: false)
                isRunnable.store(false, ordering: .relaxed)
                for _ in 0..<3 {
                    usleep(1000)
                    #expect(serving.policy == SCHED_OTHER)
                }
                return true
            }
            var times = 0
            for _ in 0..<1000 where !serving.alone.hasStarved {
                times += isFreed() ? 1 : 0
                #expect(times > 1 || !serving.alone.hasStarved)
            }
            #expect(serving.alone.hasStarved)
        }
    }

    @Test("what it waited for before it gave way is no starvation")
    func startsAfresh() throws {
        guard Yielding.isPossible() else { return }
        let waited = Atomic<UInt64>(0)
        let looks = Atomic<Int>(0)
        let starves = Atomic<Bool>(false)
        let serving = Serving { _ in
            looks.add(1, ordering: .relaxed)
            if starves.load(ordering: .relaxed) {
                waited.add(1_000_000_000, ordering: .relaxed)
            }
            return ThreadUse(
                isRunnable: false, nanoseconds: 0,
                waitedNanoseconds: waited.load(ordering: .relaxed), turns: 0)
        }
        func awaitLooks(_ count: Int) {
            let last = looks.load(ordering: .relaxed)
            while looks.load(ordering: .relaxed) < last + count { usleep(1000) }
        }
        try serving.run {
            serving.wait(untilGivingWay: true)
            awaitLooks(2)
            serving.wants.store(false, ordering: .relaxed)
            while serving.alone.wishesToYield.load(ordering: .sequentiallyConsistent) {
                usleep(100)
            }
            // Waits for the end of a look that began before `wants` changed: it may have read the
            // old waiting time.
            _ = serving.alone.hasStarved
            while serving.alone.turn.load(ordering: .sequentiallyConsistent) & 1 == 1 {
                usleep(100)
            }
            waited.store(3_600_000_000_000, ordering: .relaxed)
            serving.wants.store(true, ordering: .relaxed)
            serving.wait(untilGivingWay: true)
            awaitLooks(2)
            #expect(!serving.alone.hasStarved)
            starves.store(true, ordering: .relaxed)
            while !serving.alone.hasStarved { usleep(1000) }
        }
    }

    /// A thread that sleeps, on the CPU that the test sends it to.
    private final class Program: Sendable {
        let number = Atomic<Int32>(0)
        let cpu = Atomic<Int>(-1)
        let isThere = Atomic<Bool>(false)
        let isEnding = Atomic<Bool>(false)

        func run() {
            number.store(ward_gettid(), ordering: .sequentiallyConsistent)
            var last = -1
            while !isEnding.load(ordering: .relaxed) {
                let wanted = cpu.load(ordering: .sequentiallyConsistent)
                if wanted != last {
                    last = wanted
                    isThere.store(
                        ward_run_on_cpu(UInt32(wanted)) == 0, ordering: .sequentiallyConsistent)
                    cpu.store(-wanted - 2, ordering: .sequentiallyConsistent)
                    last = -wanted - 2
                }
                usleep(1000)
            }
        }

        /// Returns false if there is no such CPU.
        func go(to wanted: Int) -> Bool {
            cpu.store(wanted, ordering: .sequentiallyConsistent)
            while cpu.load(ordering: .sequentiallyConsistent) == wanted { usleep(100) }
            return isThere.load(ordering: .sequentiallyConsistent)
        }
    }

    @Test(
        "it is bound to the CPU of the program, and to another one after looks that found nothing")
    func follows() throws {
        let program = Program()
        let thread = try SystemThread(") R 1 2 3 (") { program.run() }
        defer {
            program.isEnding.store(true, ordering: .relaxed)
            thread.join()
        }
        while program.number.load(ordering: .sequentiallyConsistent) == 0 { usleep(100) }
        let number = program.number.load(ordering: .sequentiallyConsistent)
        let cpus = (0..<64).filter { program.go(to: $0) }
        let first = try #require(cpus.first)
        let last = try #require(cpus.last)
        #expect(program.go(to: first))
        try SystemThread("follows") {
            let all = ward_cpu_count()
            var following = FollowedProgram()
            func follow(
                _ program: UInt32, turn: UInt32 = 1,
                bind: (UInt32) -> ServingEvent.Binding = {
                    ward_run_on_cpu($0) == 0 ? .done : .impossible
                }
            ) -> Bool {
                guard following.isLookUpDue(program, turn: turn) else { return true }
                guard let cpu = Yielding.cpu(of: program) else { return false }
                guard following.isElsewhere(than: cpu) else { return true }
                switch bind(cpu) {
                case .done: following.noteBinding(to: cpu, turn: turn)
                case .notNow: following.end()
                case .impossible: return false
                }
                return true
            }
            #expect(Yielding.cpu(of: UInt32(number)) == UInt32(first))
            // The kernel itself, and a process that does not exist.
            for (stranger, mayGoOn) in [(0, true), (.max, false)] as [(UInt32, Bool)] {
                #expect(Yielding.cpu(of: stranger) == nil)
                #expect(follow(stranger) == mayGoOn)
                #expect(!following.isOn && ward_cpu_count() == all)
                following.end()
            }
            // The program's CPU is forbidden; then: the worker no longer gives way.
            #expect(!follow(UInt32(number)) { _ in .impossible })
            #expect(!following.isOn)
            following.end()
            #expect(follow(UInt32(number)) { _ in .notNow })
            #expect(!following.isOn)
            #expect(follow(UInt32(number)))
            #expect(following.isOn && ward_cpu_count() == 1 && ward_is_bound() != 0)
            #expect(ward_cpu_of_thread(ward_gettid()) == Int32(first))
            #expect(program.go(to: last))
            // A single look that finds nothing may be chance.
            following.noteLook(found: false)
            following.noteLook(found: true)
            following.noteLook(found: false)
            #expect(follow(UInt32(number)))
            #expect(ward_cpu_of_thread(ward_gettid()) == Int32(first))
            following.noteLook(found: false)
            #expect(follow(UInt32(number)))
            #expect(ward_cpu_of_thread(ward_gettid()) == Int32(last))
            // A program whose request is found each time may still be awake on another CPU.
            #expect(program.go(to: first))
            for _ in 0..<ServingLimits.requestsBetweenLookUps {
                following.noteLook(found: true)
                #expect(follow(UInt32(number)))
            }
            #expect(ward_cpu_of_thread(ward_gettid()) == Int32(first))
            // A new turn: the end of the last one undid its binding.
            #expect(ward_run_anywhere() == 0 && ward_cpu_count() == all && ward_is_bound() == 0)
            #expect(follow(UInt32(number), turn: 3))
            #expect(following.isOn && ward_cpu_count() == 1)
            following.end()
            #expect(!following.isOn)
        }.join()
    }

    @Test("what a worker that was made to give way starts does not")
    func starts() throws {
        guard Yielding.isPossible() else { return }
        let number = Atomic<Int32>(0)
        let policy = Atomic<Int32>(-1)
        let mayStart = Atomic<Bool>(false)
        let thread = try SystemThread("made-to") {
            number.store(ward_gettid(), ordering: .sequentiallyConsistent)
            while !mayStart.load(ordering: .sequentiallyConsistent) { usleep(100) }
            try? SystemThread("other") {
                policy.store(sched_getscheduler(0), ordering: .sequentiallyConsistent)
            }.join()
        }
        while number.load(ordering: .sequentiallyConsistent) == 0 { usleep(100) }
        #expect(ward_make_give_way(number.load(ordering: .relaxed), 1) == 0)
        mayStart.store(true, ordering: .sequentiallyConsistent)
        thread.join()
        #expect(policy.load(ordering: .sequentiallyConsistent) == SCHED_OTHER)
    }
}
