import Glibc
import Synchronization
import WardFormat
import WardSystem

/// Registers drops of the kernel's cached pages, so that no class opens during one.
///
/// A write(2) puts its data into the kernel's page, unlocks the page if it was filled before, and
/// only then sends the WRITE (`fuse_send_write_pages`, fs/fuse/file.c). If the page is dropped in
/// between, a READ of it may reach the volume before the WRITE, over io_uring on another CPU's
/// queue. The kernel would then keep the old content, although the write was acknowledged (decision
/// 0067). While a class is closed, no READ fills a page.
final class PageDrops: Sendable {
    /// How long `open` waits for drops under way. A drop may wait for a write-back that a hanging
    /// backing store holds up.
    static let patience = Duration.milliseconds(250)
    /// How long after the last drop an older WRITE may still be on its way. The kernel's count of
    /// requests (`waiting`) does not show it: a write(2) of several pages fills all of them before
    /// it sends a request.
    static let settling = Duration.milliseconds(20)

    private struct State {
        /// Drops that are queued or under way.
        var count = 0
        /// Classes that are about to open.
        var openings: [ProtectionClassSet] = []
        /// When the last drop ended, monotonic.
        var lastEnd: Duration?
    }

    private let state = Mutex(State())
    /// Signalled when a drop has ended.
    private let ends = FutexWord()
    private let patience: Duration
    private let settling: Duration
    private let sleep: @Sendable (Duration) -> Void

    init(
        patience: Duration = PageDrops.patience, settling: Duration = PageDrops.settling,
        sleep: @escaping @Sendable (Duration) -> Void = { usleep(UInt32($0 / .microseconds(1))) }
    ) {
        self.patience = patience
        self.settling = settling
        self.sleep = sleep
    }

    /// Announces a drop that is made now or later. False where the class is about to open: the drop
    /// must not be made.
    func announce(for protectionClass: ProtectionClass) -> Bool {
        state.withLock { state in
            guard !state.openings.contains(where: { $0.contains(protectionClass) }) else {
                return false
            }
            state.count += 1
            return true
        }
    }

    /// Makes an announced drop and returns true; false where `isClosed` says that the class is open
    /// by now.
    @discardableResult
    func perform(_ isClosed: () -> Bool, _ drop: () -> Void) -> Bool {
        let isNeeded = isClosed()
        if isNeeded { drop() }
        state.withLock { state in
            state.count -= 1
            if isNeeded { state.lastEnd = SystemClock.monotonic() }
        }
        ends.signalAll()
        return isNeeded
    }

    /// Runs `body`, which opens the classes, after drops under way and WRITEs from before them.
    /// Waits for drops up to `patience`.
    func open(_ classes: ProtectionClassSet, _ body: () -> Void) {
        state.withLock { $0.openings.append(classes) }
        defer {
            state.withLock { state in
                _ = state.openings.remove(at: state.openings.firstIndex(of: classes)!)
            }
        }
        ends.wait(deadline: SystemClock.monotonic() + patience) {
            state.withLock { $0.count == 0 }
        }
        if let lastEnd = state.withLock({ $0.lastEnd }) {
            let left = lastEnd + settling - SystemClock.monotonic()
            if left > .zero { sleep(left) }
        }
        body()
    }
}
