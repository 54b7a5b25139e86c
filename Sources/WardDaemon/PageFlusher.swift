import Glibc
import Synchronization
import WardFUSE
import WardFormat
import WardSystem
import WardVolume

/// Has the kernel write dirty mapped pages back during the grace period, so that the lock at its
/// end finds little to do.
///
/// A helper process calls syncfs(2) on the mount (decision 0011): the kernel writes in large
/// requests and running programs keep their pages, where an invalidation would write page by page
/// and take the pages away. This process never touches its own mount; the helper may hang there
/// without harm.
///
/// Concurrency: any thread; nothing here waits for a pass, which runs on a thread of its own, one
/// at a time.
final class PageFlusher: Sendable {
    /// A pass that begins this shortly before the end would be in the way of the lock, which does
    /// the same.
    private static let shortestWait = Duration.milliseconds(250)

    /// One grace period.
    private final class Run: Sendable {
        let isOver = Atomic(false)
        let end = WakeWord()
    }

    private let volume: Volume
    private let connection: FUSEConnection
    private let isFlushing = Atomic(false)
    /// The helper that is in the mount; not reaped while it is here.
    private let helper = Mutex<pid_t?>(nil)
    private let current = Mutex<Run?>(nil)

    init(volume: Volume, connection: FUSEConnection) {
        self.volume = volume
        self.connection = connection
    }

    /// The grace period has begun: a pass now, one at half of what is left, and so on. `remaining`
    /// tells what is left, nil where the lock was taken back.
    func begin(_ remaining: @escaping @Sendable () -> Duration?) {
        end()
        // One from an earlier lock is stuck: stopped by somebody, or on a store that hangs.
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

    /// The grace period is over, or the lock was taken back.
    func end() {
        let run = current.withLock { current in
            defer { current = nil }
            return current
        }
        run?.isOver.store(true, ordering: .relaxed)
        run?.end.signal()
    }

    /// One pass beside the eviction, which goes page by page.
    func assist() {
        start { [self] in pass() }
    }

    /// Waits, not for long, until no helper is in the mount: it would make an unmount fail.
    func waitUntilIdle() {
        for round in 0..<1000 where isFlushing.load(ordering: .relaxed) {
            // A program of the same user can stop it.
            if round == 500 { killHelper() }
            usleep(2000)
        }
    }

    private func killHelper() {
        helper.withLock { helper in
            if let helper { _ = kill(helper, SIGKILL) }
        }
    }

    /// Without a thread to be had there is the eviction alone.
    private func start(_ body: @escaping @Sendable () -> Void) {
        (try? SystemThread("ward-flush", body))?.detach()
    }

    private func pass() {
        guard volume.mayHaveDirtyPages(in: [.a]) else { return }
        guard !isFlushing.exchange(true, ordering: .acquiring) else { return }
        defer { isFlushing.store(false, ordering: .releasing) }
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
