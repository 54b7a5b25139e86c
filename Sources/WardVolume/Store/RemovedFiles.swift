import CWardLinux
import Glibc
import Synchronization
import WardSystem

/// Has the backing store free removed files on a thread of its own (decision 0072).
///
/// When a file loses its last name, the store records that, and then frees the file's blocks and
/// inode. Freeing takes as long again, longer for a large file. The store does it with the last
/// descriptor: one is held from before the name goes until after the program has its answer. After
/// a power cut in between, the store frees the file by its own list of such files.
///
/// This helps programs that remove one file after another. A single file is freed at once: freed
/// after the program's sync, it would add to the work of the next sync.
///
/// Concurrency: any thread.
final class RemovedFiles: Sendable {
    /// Limits of what is held at once. Beyond them the removing thread frees its file itself. Bytes
    /// as the backing store counts them.
    static let mostFiles = 64
    static let mostBytes = 64 << 20
    /// Each time so many files wait, the thread is woken.
    private static let together = 4
    /// How long the thread waits for more files, nanoseconds, and how often, before it sleeps.
    private static let waitNanoseconds = 1_000_000
    private static let waits = 4
    /// After so long a sleep the thread ends, nanoseconds.
    private static let sleepNanoseconds = 60_000_000_000
    /// A file removed so soon after another one, nanoseconds, without a sync in between, may be
    /// followed by more.
    static let togetherNanoseconds: UInt64 = 10_000_000

    /// A descriptor of a file that is about to lose its last name.
    struct Held: Sendable {
        fileprivate let descriptor: Int32
        fileprivate let bytes: Int
        /// Numbers count up in the order of `hold`.
        fileprivate let number: UInt64
    }

    private struct State {
        var waiting: [Held] = []
        /// The numbers of files that are not freed yet.
        var held: [UInt64] = []
        var newest: UInt64 = 0
        var hasThread = false
        var isAsleep = false
        /// Threads in `finish`.
        var finishing = 0
    }

    private let storage: any Storage
    private let isUseful: Bool
    /// How long a thread that needs the space waits at most.
    private let patience: Duration
    private let state: Mutex<State>
    private let word = FutexWord()
    /// Signalled when a file is freed, if a thread waits for that.
    private let freed = FutexWord()
    /// Files, and their bytes, that are not freed yet.
    private let files = Atomic<Int>(0)
    private let bytes = Atomic<Int>(0)
    /// When a file was last removed, nanoseconds of the backing store's clock; 0 after a sync.
    private let last = Atomic<UInt64>(0)

    /// `isUseful`: false makes this do nothing.
    init(_ storage: any Storage, isUseful: Bool, patience: Duration = .seconds(1)) {
        self.storage = storage
        self.isUseful = isUseful
        self.patience = patience
        var state = State()
        state.waiting.reserveCapacity(RemovedFiles.mostFiles)
        state.held.reserveCapacity(RemovedFiles.mostFiles)
        self.state = Mutex(state)
    }

    /// Holds a file that is about to lose its last name. Nil where the backing store should free it
    /// at once. The caller calls `giveBack`, even where the removal fails.
    func hold(_ status: FileStatus, _ directory: Int32, _ stored: UnsafePointer<CChar>) -> Held? {
        guard isUseful, status.st_nlink == 1, status.st_mode & S_IFMT == S_IFREG else {
            return nil
        }
        let size = Int(clamping: status.st_blocks) &* 512
        let now = storage.nanoseconds()
        let before = last.exchange(now, ordering: .relaxed)
        guard now &- before < RemovedFiles.togetherNanoseconds,
            files.load(ordering: .relaxed) < RemovedFiles.mostFiles,
            bytes.load(ordering: .relaxed) &+ size <= RemovedFiles.mostBytes,
            let descriptor = try? storage.openPlace(directory, stored)
        else { return nil }
        files.add(1, ordering: .sequentiallyConsistent)
        bytes.add(size, ordering: .relaxed)
        let number = state.withLock { state in
            state.newest += 1
            state.held.append(state.newest)
            return state.newest
        }
        return Held(descriptor: descriptor, bytes: size, number: number)
    }

    /// Notes that a program syncs something.
    @inline(__always)
    func noteSync() { last.store(0, ordering: .relaxed) }

    /// Queues a held file for freeing, after the removal.
    func giveBack(_ held: Held?) {
        guard let held else { return }
        let (isFirst, wakes) = state.withLock { state in
            state.waiting.append(held)
            defer {
                state.hasThread = true
                state.isAsleep = false
            }
            let isDue = state.waiting.count % RemovedFiles.together == 0
            return (!state.hasThread, state.isAsleep || isDue)
        }
        if isFirst {
            startThread()
        } else if wakes {
            word.signalAll()
        }
    }

    private func startThread() {
        do throws(Errno) {
            try SystemThread("ward-removed", stackBytes: 256 << 10) { self.work() }.detach()
        } catch {
            // The thread could not be started: this thread frees the files.
            var taken: [Held] = []
            state.withLock { state in
                swap(&state.waiting, &taken)
                state.hasThread = false
            }
            takeApart(taken)
        }
    }

    private func takeApart(_ some: [Held]) {
        for held in some {
            storage.close(held.descriptor)
            bytes.subtract(held.bytes, ordering: .relaxed)
            files.subtract(1, ordering: .sequentiallyConsistent)
            // Last, so that `finish` returns only after the counters are right.
            let isAwaited = state.withLock { state in
                state.held.removeAll { $0 == held.number }
                return state.finishing > 0
            }
            if isAwaited { freed.signalAll() }
        }
    }

    private func work() {
        var taken: [Held] = []
        taken.reserveCapacity(RemovedFiles.mostFiles)
        var inVain = 0
        while true {
            let now = word.value
            let isOver = state.withLock { state in
                swap(&state.waiting, &taken)
                guard taken.isEmpty else { return false }
                state.isAsleep = inVain >= RemovedFiles.waits
                state.hasThread = inVain <= RemovedFiles.waits
                return !state.hasThread
            }
            if isOver { return }
            if taken.isEmpty {
                let isAsleep = inVain >= RemovedFiles.waits
                inVain += 1
                word.wait(
                    while: now,
                    nanoseconds: isAsleep
                        ? RemovedFiles.sleepNanoseconds : RemovedFiles.waitNanoseconds)
            } else {
                inVain = 0
                takeApart(taken)
                taken.removeAll(keepingCapacity: true)
            }
        }
    }

    /// Whether some files are not freed yet.
    @inline(__always)
    var isBusy: Bool { files.load(ordering: .sequentiallyConsistent) > 0 }

    /// The number of the file that was held last.
    var newest: UInt64 { state.withLock { $0.newest } }

    /// Waits until the files up to `number` are freed; nil: all files that are held now. False
    /// where `patience` ran out.
    @discardableResult
    func finish(upTo number: UInt64? = nil) -> Bool {
        guard isBusy else { return true }
        let deadline = SystemClock.monotonic() + patience
        let last = number ?? newest
        state.withLock { $0.finishing += 1 }
        defer { state.withLock { $0.finishing -= 1 } }
        word.signalAll()
        return freed.wait(deadline: deadline) {
            !state.withLock { state in state.held.contains { $0 <= last } }
        }
    }

    /// Runs `body`. If it fails with `ENOSPC` or `EDQUOT` while removed files still take space,
    /// waits for them and runs it once more. Calls `willWait` before that.
    @inline(__always)
    func withSpace(
        willWait: () -> Void, _ body: () throws(Errno) -> Void
    ) throws(Errno) {
        let wasBusy = isBusy
        do throws(Errno) {
            try body()
        } catch {
            let isFull = error == .noSpace || error == .diskQuotaExceeded
            guard isFull, wasBusy || isBusy else { throw error }
            willWait()
            finish()
            try body()
        }
    }
}
