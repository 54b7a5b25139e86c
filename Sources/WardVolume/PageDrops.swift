import Glibc
import Synchronization
import WardFormat
import WardSystem

/// Whoever has the kernel drop a file's cached pages says so here, so that its class is never
/// opened meanwhile.
///
/// A write(2) puts its data into the kernel's page, lets go of the page where that was filled
/// before, and asks then (`fuse_send_write_pages`, fs/fuse/file.c). If the page is dropped in
/// between, a READ of it may reach the volume before the WRITE does, over io_uring on another CPU's
/// queue: the kernel would keep what the file held before, for as long as it likes, though the
/// write was acknowledged (decision 0067). While a class is closed no READ fills a page.
final class PageDrops: Sendable {
    /// How long `open` waits for drops under way; one may wait for a write-back that a hanging
    /// store holds up.
    static let patience = Duration.milliseconds(250)
    /// How long after the last drop a WRITE from before it may still be on its way. The kernel's
    /// count of requests (`waiting`) does not tell: a write(2) of several pages fills all of them
    /// before it asks.
    static let settling = Duration.milliseconds(20)

    private struct State {
        /// Queued or under way.
        var count = 0
        /// What is about to be opened.
        var openings: [ProtectionClassSet] = []
        /// When the last one ended, monotonic.
        var lastEnd: Duration?
    }

    private let state = Mutex(State())
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

    /// Announces a drop that is made later, or at once. False where the class is about to be
    /// opened: there is to be none.
    func announce(for protectionClass: ProtectionClass) -> Bool {
        state.withLock { state in
            guard !state.openings.contains(where: { $0.contains(protectionClass) }) else {
                return false
            }
            state.count += 1
            return true
        }
    }

    /// Makes an announced drop, and returns true; false where it came too late: `isClosed` says
    /// whether the class still is.
    @discardableResult
    func perform(_ isClosed: () -> Bool, _ drop: () -> Void) -> Bool {
        let isNeeded = isClosed()
        if isNeeded { drop() }
        state.withLock { state in
            state.count -= 1
            if isNeeded { state.lastEnd = SystemClock.monotonic() }
        }
        return isNeeded
    }

    /// Runs `body`, which opens the classes: no drop is under way then, and no WRITE from before
    /// one.
    func open(_ classes: ProtectionClassSet, _ body: () -> Void) {
        state.withLock { $0.openings.append(classes) }
        defer {
            state.withLock { state in
                _ = state.openings.remove(at: state.openings.firstIndex(of: classes)!)
            }
        }
        let end = SystemClock.monotonic() + patience
        while state.withLock({ $0.count > 0 }), SystemClock.monotonic() < end { usleep(100) }
        if let lastEnd = state.withLock({ $0.lastEnd }) {
            let left = lastEnd + settling - SystemClock.monotonic()
            if left > .zero { sleep(left) }
        }
        body()
    }
}
