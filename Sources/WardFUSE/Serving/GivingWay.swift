import CWardLinux
import Glibc
import Synchronization
import WardSystem

// Workers that yield to every program (`SCHED_IDLE`, sched(7)), decision 0068.
//
// When a program is woken while its worker still runs, the scheduler puts it on an idle CPU
// (`select_idle_sibling`, kernel/sched/fair.c). Each answer would move the program, and a move
// costs more than the request. A CPU that runs only SCHED_IDLE threads counts as idle, so beside
// such a worker the program stays where it is.

/// Tells whether the requests of a queue come one after the other.
///
/// Requests of several programs at once should be spread over the CPUs: a worker yields only while
/// they come one after the other.
struct RequestMix {
    /// The window, in requests, before a worker may yield: less than `fewShared` of them may be
    /// shared.
    private static let longWindow = 64
    /// The window while the worker yields: `fewShared` shared requests in it end that.
    private static let shortWindow = 16
    private static let fewShared = 4

    private(set) var isSerial = false
    private var requests = 0
    private var shared = 0

    /// `isShared`: another request of the queue is being served.
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

/// A thread's use of the CPUs, proc(5).
struct ThreadUse: Equatable {
    /// The thread runs, or waits only for a CPU.
    var isRunnable: Bool
    /// The time on a CPU until now. The time waiting for a CPU, until the thread last got one; how
    /// often it did.
    var nanoseconds: UInt64
    var waitedNanoseconds: UInt64 = 0
    var turns: UInt64

    /// Reads the use of a thread of this process; nil where the system does not tell.
    static func read(ofThread thread: Int32) -> ThreadUse? {
        // "1234 (name) R 1 …": the name may hold any character.
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

    /// Reads the thread's CPU clock, which is exact; the time in proc(5) grows with the kernel's
    /// ticks.
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

/// Finds workers that yield and hardly get a CPU, because a program computes without a pause.
struct Starvation {
    /// The time between two looks, nanoseconds: longer than a tick, at which the kernel lets other
    /// threads run.
    static let intervalNanoseconds: Int = {
        var tick = timespec()
        clock_getres(CLOCK_MONOTONIC_COARSE, &tick)
        return max(5_000_000, tick.tv_nsec * 3 / 2)
    }()
    /// How long no worker yields after the first finding, and at most, nanoseconds. The pause
    /// doubles with each finding that follows soon.
    static let firstPauseNanoseconds: UInt64 = 100_000_000
    static let longestPauseNanoseconds: UInt64 = 64_000_000_000

    private var last: [Int32: ThreadUse] = [:]
    private var pause = Starvation.firstPauseNanoseconds
    private var lastFound: UInt64?

    /// True once a starved worker was found.
    var hasFound: Bool { lastFound != nil }

    /// Returns the starved ones of `threads`. A thread is starved if it was runnable at both looks
    /// and did not run. So it is if it waited for most of the time, or can't be read.
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

    /// Notes that starved workers were found at `now`, nanoseconds of the monotonic clock. Returns
    /// how long no worker may yield.
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
    /// How long no worker yields after a lock begins.
    static let pauseAtLockNanoseconds: UInt64 = 100_000_000

    /// Tells whether a thread may yield: only where that can be undone, and starvation can be seen.
    /// An ordinary user may undo it where `RLIMIT_NICE` allows niceness 0 (20, setrlimit(2)).
    ///
    /// A thread that only sleeps tries it: a thread that yields and can't undo it might not end for
    /// long.
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
        // If the process runs in another class of the scheduler, that stays as it is.
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

        /// Returns the thread's number, gettid(2).
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
