import Glibc
import Synchronization
import WardFUSE
import WardFormat
import WardSystem
import WardVolume

/// Makes the kernel write dirty mapped pages back during the grace period, so that the lock at its
/// end has little to do.
///
/// A helper process calls syncfs(2) on the mount (decision 0011). The kernel then writes in large
/// requests, and programs keep their pages. An invalidation would write page by page and take the
/// pages away. The daemon never touches its own mount; the helper may hang there without harm.
///
/// Concurrency: any thread. A pass runs on a thread of its own, one at a time, and no method waits
/// for it but `waitUntilIdle`.
final class PageFlusher: Sendable {
    /// A pass that begins less than this before the end would only hinder the lock, which does the
    /// same.
    private static let shortestWait = Duration.milliseconds(250)

    /// One grace period.
    private final class Run: Sendable {
        let isOver = Atomic(false)
        let end = WakeWord()
    }

    private let volume: Volume
    private let connection: FUSEConnection
    private let isFlushing = Atomic(false)
    /// Signalled when a pass has ended.
    private let ends = FutexWord()
    /// The helper that works in the mount; not reaped while its number is here.
    private let helper = Mutex<pid_t?>(nil)
    private let current = Mutex<Run?>(nil)

    init(volume: Volume, connection: FUSEConnection) {
        self.volume = volume
        self.connection = connection
    }

    /// Begins the passes of a grace period: one now, one at half of the remaining time, and so on.
    /// The closure `remaining` returns that time; nil where the lock was cancelled.
    func begin(_ remaining: @escaping @Sendable () -> Duration?) {
        end()
        // A helper of an earlier lock is stuck: a program stopped it, or the store hangs.
        killHelper()
        let run = Run()
        current.withLock { $0 = run }
        start { [self] in
            while !run.isOver.load(ordering: .relaxed), let left = remaining(),
                left > PageFlusher.shortestWait
            {
                pass()
                guard let left = remaining() else { return }
                run.end.wait(timeout: max(left / 2, PageFlusher.shortestWait))
            }
        }
    }

    /// Ends the passes: the grace period has ended, or the lock was cancelled.
    func end() {
        let run = current.withLock { current in
            defer { current = nil }
            return current
        }
        run?.isOver.store(true, ordering: .relaxed)
        run?.end.signal()
    }

    /// Runs one pass beside the eviction, which goes page by page.
    func assist() {
        start { [self] in pass() }
    }

    /// Waits a short time until no helper is in the mount, where it would make an unmount fail.
    func waitUntilIdle() {
        if isIdle(within: .seconds(1)) { return }
        // A program of the same user may have stopped it.
        killHelper()
        _ = isIdle(within: .seconds(1))
    }

    /// Waits until no pass is under way; false where `patience` ran out.
    private func isIdle(within patience: Duration) -> Bool {
        ends.wait(deadline: SystemClock.monotonic() + patience) {
            !isFlushing.load(ordering: .acquiring)
        }
    }

    private func killHelper() {
        helper.withLock { helper in
            if let helper { _ = kill(helper, SIGKILL) }
        }
    }

    /// Where no thread can be started, the eviction does all the work.
    private func start(_ body: @escaping @Sendable () -> Void) {
        (try? SystemThread("ward-flush", body))?.detach()
    }

    private func pass() {
        guard volume.mayHaveDirtyPages(in: [.a]) else { return }
        guard !isFlushing.exchange(true, ordering: .acquiring) else { return }
        defer {
            isFlushing.store(false, ordering: .releasing)
            ends.signalAll()
        }
        let words = [
            "write-back", "--connection", "\(connection.connectionID)", "--mount-point",
            connection.mountPoint,
        ]
        guard let child = OwnProgram.start(words, descriptors: [], ownSession: false) else {
            return
        }
        helper.withLock { $0 = child }
        OwnProgram.awaitEnd(of: child)
        helper.withLock { $0 = nil }
        OwnProgram.wait(for: child)
    }
}
