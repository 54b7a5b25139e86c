import CWardLinux
import Glibc
import Synchronization
import WardSystem

/// The kernel's side of workers that yield to every program (`SCHED_IDLE`, sched(7)), decision
/// 0068. `ServingPolicy` says when they do.
///
/// When a program is woken while its worker still runs, the scheduler puts it on an idle CPU
/// (`select_idle_sibling`, kernel/sched/fair.c). Each answer would move the program, and a move
/// costs more than the request. A CPU that runs only SCHED_IDLE threads counts as idle, so beside
/// such a worker the program stays where it is.
enum Yielding {
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

    /// The CPU of the thread `program`, gettid(2); nil where that can't be seen, or ward may not
    /// run there.
    static func cpu(of program: UInt32) -> UInt32? {
        let cpu = ward_cpu_of_thread(pid_t(bitPattern: program))
        guard cpu >= 0, ward_may_run_on_cpu(UInt32(cpu)) != 0 else { return nil }
        return UInt32(cpu)
    }
}

extension ServingMachine {
    /// Reads the number of CPUs, and the kernel's tick.
    static func read() -> ServingMachine {
        var tick = timespec()
        clock_getres(CLOCK_MONOTONIC_COARSE, &tick)
        return ServingMachine(
            processors: sysconf(Int32(_SC_NPROCESSORS_ONLN)),
            starvationNanoseconds: max(
                ServingLimits.starvationNanoseconds, UInt64(tick.tv_nsec) * 3 / 2))
    }
}

extension ThreadUse {
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
