import CWardLinux
import Glibc
import Synchronization
import WardSystem

// Workers of FUSE over io_uring that let every program go first (`SCHED_IDLE`, sched(7)), decision
// 0068.
//
// A program that is woken while its worker still runs is put on another CPU, where that has nothing
// to do (`select_idle_sibling`, kernel/sched/fair.c): each answer would move it, and each move
// costs more than the request. A CPU that runs nothing but SCHED_IDLE counts as one with nothing to
// do, so beside such a worker the program stays where it is.

/// Whether the requests of a queue come one after the other.
///
/// Those of several programs at once had better be spread over the CPUs: a worker gives way only
/// while they don't.
struct RequestMix {
    /// Requests after which a worker may give way, and of which so many must have had company at
    /// most.
    private static let longWindow = 64
    /// Those after which it does not any more, and so many of them must have had company at least.
    private static let shortWindow = 16
    private static let fewShared = 4

    private(set) var isSerial = false
    private var requests = 0
    private var shared = 0

    /// `isShared`: while another one of the queue is served.
    @inline(__always)
    mutating func note(isShared: Bool) {
        requests += 1
        if isShared { shared += 1 }
        let isFull = requests >= (isSerial ? RequestMix.shortWindow : RequestMix.longWindow)
        guard isFull || isSerial && shared >= RequestMix.fewShared else { return }
        isSerial = shared < RequestMix.fewShared
        requests = 0
        shared = 0
    }
}

/// What a thread has had of the CPUs, proc(5).
struct ThreadUse: Equatable {
    /// It runs, or would if it were let.
    var isRunnable: Bool
    /// How long it ran, to this moment; how long it waited before it did, up to the last time that
    /// it was let; nanoseconds. And how often it was.
    var nanoseconds: UInt64
    var waitedNanoseconds: UInt64 = 0
    var turns: UInt64

    /// Of a thread of this process; nil where the system does not tell.
    static func read(ofThread thread: Int32) -> ThreadUse? {
        // "1234 (name) R 1 …": the name may hold anything.
        guard let status = text("/proc/self/task/\(thread)/stat"),
            let close = status.lastIndex(of: UInt8(ascii: ")")), close + 2 < status.endIndex,
            let numbers = text("/proc/self/task/\(thread)/schedstat")
        else { return nil }
        // Time on a CPU, time waiting for one, turns.
        let fields = numbers.split(whereSeparator: { $0 == UInt8(ascii: " ") || $0 == 10 }).map {
            UInt64(String(decoding: $0, as: UTF8.self))
        }
        guard fields.count == 3, let waited = fields[1], let turns = fields[2],
            let nanoseconds = nanoseconds(ofThread: thread)
        else { return nil }
        return ThreadUse(
            isRunnable: status[close + 2] == UInt8(ascii: "R"), nanoseconds: nanoseconds,
            waitedNanoseconds: waited, turns: turns)
    }

    /// By its clock, which goes on while it runs; what proc(5) tells grows with the kernel's ticks.
    private static func nanoseconds(ofThread thread: Int32) -> UInt64? {
        // CPUCLOCK_PERTHREAD_MASK and CPUCLOCK_SCHED of linux/posix-timers.h, as
        // pthread_getcpuclockid(3) makes them.
        let clock = clockid_t(bitPattern: UInt32(bitPattern: ~thread) << 3 | 6)
        var time = timespec()
        guard clock_gettime(clock, &time) == 0 else { return nil }
        return UInt64(time.tv_sec) &* 1_000_000_000 &+ UInt64(time.tv_nsec)
    }

    private static func text(_ path: String) -> [UInt8]? {
        guard let file = try? OwnedDescriptor(opening: path, O_RDONLY) else { return nil }
        var bytes = [UInt8](repeating: 0, count: 512)
        guard let count = try? Syscall.read(file.rawValue, &bytes, bytes.count) else { return nil }
        return Array(bytes.prefix(count))
    }
}

/// Finds workers that gave way and are hardly let run, where a program does not stop computing.
struct Starvation {
    /// Between two looks, nanoseconds: more than a tick of the kernel, at which it lets others run.
    static let intervalNanoseconds: Int = {
        var tick = timespec()
        clock_getres(CLOCK_MONOTONIC_COARSE, &tick)
        return max(5_000_000, tick.tv_nsec * 3 / 2)
    }()
    /// How long nobody gives way after it was found once, and at most, nanoseconds: twice as long
    /// each time.
    static let firstPauseNanoseconds: UInt64 = 100_000_000
    static let longestPauseNanoseconds: UInt64 = 64_000_000_000

    private var last: [Int32: ThreadUse] = [:]
    private var pause = Starvation.firstPauseNanoseconds
    private var lastFound: UInt64?

    /// Some were found, ever.
    var hasFound: Bool { lastFound != nil }

    /// Those of `threads` that wanted to run from the last look to this one, and never did; that
    /// waited for most of the time before they did; or that can't be seen.
    mutating func find(
        _ threads: [Int32], use: (Int32) -> ThreadUse? = ThreadUse.read(ofThread:)
    ) -> [Int32] {
        var now: [Int32: ThreadUse] = [:]
        for thread in threads { now[thread] = use(thread) }
        defer { last = now }
        return threads.filter { thread in
            guard let use = now[thread] else { return true }
            guard let before = last[thread] else { return false }
            if use.isRunnable, use == before { return true }
            let waited = use.waitedNanoseconds &- before.waitedNanoseconds
            return waited > UInt64(Starvation.intervalNanoseconds / 2)
                && waited > 4 &* (use.nanoseconds &- before.nanoseconds)
        }
    }

    /// Some were found at `now`, nanoseconds of the monotonic clock: how long to go without.
    mutating func pauseNanoseconds(at now: UInt64) -> UInt64 {
        if let lastFound, now &- lastFound < 10 &* pause {
            pause = min(2 &* pause, Starvation.longestPauseNanoseconds)
        } else {
            pause = Starvation.firstPauseNanoseconds
        }
        lastFound = now
        return pause
    }
}

enum GivingWay {
    /// How long nobody does from the beginning of a lock.
    static let pauseAtLockNanoseconds: UInt64 = 100_000_000

    /// Whether a thread may give way: only where it can be undone, and starvation seen. An ordinary
    /// user may undo it where `RLIMIT_NICE` lets niceness be 0 (20, setrlimit(2)).
    ///
    /// That is tried on a thread that only sleeps: one that gives way, and for which it can't be
    /// undone, might not end for long.
    static func isPossible() -> Bool {
        var limit = rlimit()
        guard
            geteuid() == 0
                || getrlimit(__rlimit_resource_t(13), &limit) == 0 && limit.rlim_cur >= 20
        else { return false }
        let sleeper = Sleeper()
        guard let thread = try? SystemThread("ward-ring-try", { sleeper.run() }) else {
            return false
        }
        defer {
            sleeper.end()
            thread.detach()
        }
        let number = sleeper.begun()
        // Who was given another class of the scheduler knows why.
        guard sched_getscheduler(number) == SCHED_OTHER, ward_make_give_way(number, 1) == 0,
            ward_thread_gives_way(number) != 0, ward_make_give_way(number, 0) == 0,
            let use = ThreadUse.read(ofThread: number)
        else { return false }
        return use.turns > 0
    }

    private final class Sleeper: Sendable {
        private let thread = Atomic<Int32>(0)
        private let beginning = FutexWord()
        private let ending = FutexWord()

        func run() {
            thread.store(ward_gettid(), ordering: .sequentiallyConsistent)
            beginning.increment()
            beginning.wakeAll()
            while ending.value == 0 { ending.wait(while: 0) }
        }

        /// Its number, gettid(2).
        func begun() -> Int32 {
            while beginning.value == 0 { beginning.wait(while: 0) }
            return thread.load(ordering: .sequentiallyConsistent)
        }

        func end() {
            ending.increment()
            ending.wakeAll()
        }
    }
}
