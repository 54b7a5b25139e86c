import DataProtection
import Dispatch
import Synchronization

/// Closes one database before the locks of its volume, opens it after them, and admits accesses
/// while it is open.
///
/// Concurrency: a mutex guards `state`, held for a few instructions only. The serial queue
/// `control` opens and closes, one step after the other. It never waits for an access: the last
/// access to end hands the closing to the queue. So an access may begin another access during a
/// lock without a deadlock.
final class DatabaseKeeper: Sendable {
    private struct State {
        var opened: OpenDatabase?
        /// The accesses to `opened` that have begun and not ended.
        var accesses = 0
        /// No access is admitted, and `opened` is closed when the last access has ended.
        var isLeaving = false
        /// The mount of `opened` is gone, and its descriptors are useless.
        var isLost = false
        /// How often `isLeaving` has become true. Where the number has changed since an access
        /// began, the lock is why the access failed.
        var departures: UInt64 = 0
        /// The volume's state at the last departure.
        var reason = ProtectedData.State.unknown
        var isEnded = false
    }

    private struct Access {
        let opened: OpenDatabase
        let departures: UInt64
    }

    private let store: DatabaseStore
    private let state = Mutex(State())
    private let control = DispatchQueue(label: "org.ward.protected-database")

    init(_ store: DatabaseStore) { self.store = store }

    var isAvailable: Bool {
        state.withLock { !$0.isLeaving && !$0.isEnded && $0.opened != nil }
    }

    // MARK: Access

    func access<T>(_ body: (any DatabaseWriter) throws -> T) throws -> T {
        let access = try begin()
        defer { end() }
        do {
            return try body(access.opened.writer)
        } catch {
            throw explained(error, access)
        }
    }

    func access<T: Sendable>(_ body: (any DatabaseWriter) async throws -> T) async throws -> T {
        let access =
            if let access = try enter() { access } else {
                try await offThePool { try self.begin() }
            }
        defer { end() }
        do {
            return try await body(access.opened.writer)
        } catch {
            // The explanation asks the daemon, which blocks.
            guard StoreFailure.mayBeALock(error) else { throw error }
            throw try await offThePool { self.explained(error, access) }
        }
    }

    /// Begins an access. Blocks while the database is opened.
    private func begin() throws -> Access {
        for _ in 0..<10 {
            if let access = try enter() { return access }
            try control.sync { try reopen() }
        }
        // The volume was locked and unlocked again and again.
        throw store.locked(state.withLock { $0.reason })
    }

    /// Begins an access; nil where the database must be opened first.
    private func enter() throws -> Access? {
        let access = try state.withLock { state throws -> Access? in
            if state.isEnded {
                throw DatabaseError(resultCode: .SQLITE_MISUSE, message: "Connection is closed")
            }
            guard let opened = state.opened, !state.isLeaving else { return nil }
            state.accesses += 1
            return Access(opened: opened, departures: state.departures)
        }
        guard let access else { return nil }
        // Until the event of the lock arrives, SQLite would answer from its cache.
        switch access.opened.sentinel.look() {
        case .readable: return access
        case .locked: leave(.unknown)
        case .lost: leave(.unknown, isLost: true)
        }
        end()
        return nil
    }

    private func end() {
        let isLast = state.withLock { state in
            state.accesses -= 1
            return state.accesses == 0 && state.isLeaving
        }
        if isLast { control.async { self.closeIfLeaving() } }
    }

    private func offThePool<T: Sendable>(
        _ body: @escaping @Sendable () throws -> T
    ) async throws -> T {
        try await withCheckedThrowingContinuation { continuation in
            DispatchQueue.global().async { continuation.resume(with: Result { try body() }) }
        }
    }

    // MARK: Errors

    /// The error of a failed access: `locked` where a lock is the reason, for any error code of
    /// SQLite's.
    ///
    /// A lock that is already over is known only from its event, which may still be on its way. So
    /// this waits a moment for the event.
    private func explained(_ error: any Error, _ access: Access) -> any Error {
        guard StoreFailure.mayBeALock(error) else { return error }
        if let explanation = explanation(of: error, access) { return explanation }
        let end = ContinuousClock.now + StoreFailure.patience(error)
        while ContinuousClock.now < end {
            usleep(10_000)
            if state.withLock({ $0.departures }) != access.departures {
                return explanation(of: error, access) ?? error
            }
        }
        return error
    }

    /// The error where the lock is known to be the reason; nil where there is no sign of a lock.
    private func explanation(of error: any Error, _ access: Access) -> (any Error)? {
        let now = store.volume.snapshot
        let (departures, reason, isLost) = state.withLock { ($0.departures, $0.reason, $0.isLost) }
        if departures != access.departures {
            guard let now, !store.keepsOpen(in: now) else {
                // Unlocked again in the meantime.
                return isLost ? error : store.locked(reason)
            }
            return store.locked(now.state)
        }
        let sentinel = access.opened.sentinel
        switch sentinel.isElsewhere ? .lost : sentinel.look() {
        case .lost:
            // The next access opens the database on the present mount.
            leave(.unknown, isLost: true)
            return error
        case .locked where now == nil:
            leave(.unknown)
            return store.locked(.unknown)
        default: break
        }
        guard let now, !store.keepsOpen(in: now) else { return nil }
        leave(now.state)
        return store.locked(now.state)
    }

    // MARK: Closing

    /// Takes the volume's events, in order.
    func follow(_ event: ProtectedData.Event) {
        control.async { self.take(event) }
    }

    private func take(_ event: ProtectedData.Event) {
        guard let now = event.snapshot else {
            // No daemon serves the volume. `began` without a snapshot says nothing about a mount
            // that was there.
            if event.kind == .ended { leave(.unknown, isLost: true) }
            return
        }
        guard !store.keepsOpen(in: now) else {
            // The volume may have been locked until now. A failure is reported to the next access.
            if state.withLock({ $0.isLeaving }) { try? reopen() }
            return
        }
        leave(now.state)
        if !now.isAvailable(for: store.protection) {
            interrupt()
        } else if let remaining = event.remaining {
            let seconds = remaining / .seconds(1) * 0.8
            let departures = state.withLock { $0.departures }
            control.asyncAfter(deadline: .now() + seconds) {
                guard self.state.withLock({ $0.departures }) == departures else { return }
                self.interrupt()
            }
        }
    }

    /// Admits no access from here on.
    private func leave(_ reason: ProtectedData.State, isLost: Bool = false) {
        let isIdle = state.withLock { state in
            guard state.opened != nil else { return false }
            if !state.isLeaving || reason != .unknown { state.reason = reason }
            if !state.isLeaving { state.departures += 1 }
            state.isLeaving = true
            state.isLost = state.isLost || isLost
            return state.accesses == 0
        }
        if isIdle { control.async { self.closeIfLeaving() } }
    }

    /// Interrupts the statements that run, so that their accesses fail and end. Does nothing where
    /// the volume is available: the event of a lock may come late, and these accesses may have
    /// begun after the unlock.
    private func interrupt() {
        guard leavingInUse != nil else { return }
        if let now = store.volume.snapshot, store.keepsOpen(in: now) { return }
        // `close` may have closed the database in the meantime.
        leavingInUse?.writer.interrupt()
    }

    /// The database that closes when its last access has ended; nil without such a database.
    private var leavingInUse: OpenDatabase? {
        state.withLock { $0.isLeaving && $0.accesses > 0 ? $0.opened : nil }
    }

    /// Closes the database if its last access has ended. Runs on `control`.
    private func closeIfLeaving() {
        let leaving = state.withLock { state -> (opened: OpenDatabase, hasTime: Bool)? in
            guard let opened = state.opened, state.isLeaving, state.accesses == 0, !state.isEnded
            else { return nil }
            state.opened = nil
            return (opened, state.reason == .locking && !state.isLost)
        }
        guard let leaving else { return }
        // A checkpoint needs time, which only an announced lock leaves: it uses the mapped index,
        // which a reboot takes away. If closing fails, the last reference closes the database.
        try? leaving.opened.close(checkpointing: leaving.hasTime && store.isReadable)
    }

    /// Closes for good. Waits, on the caller's thread, for the accesses that run.
    func close() throws { try close(checkpointing: store.isReadable) }

    /// Closes without waiting and without a checkpoint: when this runs, the volume may be going
    /// away.
    func abandon() { control.async { try? self.close(checkpointing: false) } }

    private func close(checkpointing: Bool) throws {
        let opened = state.withLock { state in
            defer {
                state.opened = nil
                state.isEnded = true
            }
            return state.opened
        }
        try opened?.close(checkpointing: checkpointing)
    }

    // MARK: Opening

    func openFirst() async throws {
        try await offThePool { try self.control.sync { try self.openFile(isFirst: true) } }
    }

    /// Opens the database again. Runs on `control`. Throws `locked` where it must stay closed.
    private func reopen() throws {
        let (isOpen, isNeeded) = state.withLock {
            ($0.opened != nil, !$0.isEnded && ($0.isLeaving || $0.opened == nil))
        }
        guard isNeeded else { return }
        if let now = store.volume.snapshot {
            guard isOpen ? store.keepsOpen(in: now) : store.canBeOpened(in: now) else {
                throw store.locked(now.state)
            }
        }
        let isKept = try state.withLock { state in
            guard state.opened != nil, state.accesses > 0 else { return false }
            // Descriptors from before the lock work again after the unlock (row O13), so the
            // accesses that still run go on.
            guard !state.isLost else {
                throw DatabaseError(
                    resultCode: .SQLITE_IOERR, message: "the volume was unmounted meanwhile")
            }
            state.isLeaving = false
            return true
        }
        if isKept { return }
        closeIfLeaving()
        try openFile(isFirst: false)
    }

    /// Opens the database and takes it into use. Runs on `control`.
    private func openFile(isFirst: Bool) throws {
        let opened = try store.openTryingAgain(isFirst: isFirst)
        let isWanted = state.withLock { state in
            guard !state.isEnded else { return false }
            state.opened = opened
            state.isLeaving = false
            state.isLost = false
            return true
        }
        if !isWanted { try opened.close(checkpointing: store.isReadable) }
    }
}
