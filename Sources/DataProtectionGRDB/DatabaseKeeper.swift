import DataProtection
import Dispatch
import Synchronization

/// Opens and closes one database around the locks of its volume, and lets accesses in while it is
/// open.
///
/// Concurrency model: `state` is guarded by its mutex, held for a few instructions. Everything that
/// opens or closes runs on the serial queue `control`, one thing after the other, and never waits
/// for an access: the last access to end hands the closing to the queue. So an access may begin
/// another one in the middle of a lock without waiting for itself.
final class DatabaseKeeper: Sendable {
    private struct State {
        var opened: OpenDatabase?
        /// Of `opened`, that have begun and not ended.
        var accesses = 0
        /// Nobody is let in; `opened` is closed when the last access has ended.
        var isLeaving = false
        /// The mount under `opened` is gone, its descriptors are of no use.
        var isLost = false
        /// How often `isLeaving` has become true: an access that fails after it was so because of
        /// that.
        var departures: UInt64 = 0
        /// The volume's state at the last departure.
        var reason = ProtectedData.State.unknown
        var isEnded = false
    }

    private struct Access {
        let opened: OpenDatabase
        let departures: UInt64
    }

    /// How often an opening that fails is tried.
    private static let openings = 4

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
            // Where there is something to find out, the daemon is asked, which blocks.
            guard StoreFailure.mayBeALock(error) else { throw error }
            throw try await offThePool { self.explained(error, access) }
        }
    }

    /// Blocks while the database is opened.
    private func begin() throws -> Access {
        for _ in 0..<10 {
            if let access = try enter() { return access }
            try control.sync { try reopen() }
        }
        // Locked and unlocked all the time.
        throw store.locked(state.withLock { $0.reason })
    }

    /// Nil where it has to be opened first.
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
        // What SQLite has in its cache it would give without asking anybody, until the news of the
        // lock is here.
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

    /// `locked` where that is the reason, whatever SQLite calls it.
    ///
    /// A lock that is over already is known by its news alone, which may still be under way: they
    /// are given a moment.
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

    /// Nil where nothing that is known now speaks of a lock.
    private func explanation(of error: any Error, _ access: Access) -> (any Error)? {
        let now = store.volume.snapshot
        let (departures, reason, isLost) = state.withLock { ($0.departures, $0.reason, $0.isLost) }
        if departures != access.departures {
            guard let now, !store.keepsOpen(in: now) else {
                // Unlocked again since.
                return isLost ? error : store.locked(reason)
            }
            return store.locked(now.state)
        }
        let sentinel = access.opened.sentinel
        switch sentinel.isElsewhere ? .lost : sentinel.look() {
        case .lost:
            // The next access finds it on the mount that is there now.
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

    /// The news, in order.
    func follow(_ event: ProtectedData.Event) {
        control.async { self.take(event) }
    }

    private func take(_ event: ProtectedData.Event) {
        guard let now = event.snapshot else {
            // Nobody serves the volume; where nobody ever told anything, nothing is known.
            if event.kind == .ended { leave(.unknown, isLost: true) }
            return
        }
        guard !store.keepsOpen(in: now) else {
            // It may have been locked until now. What fails is told to the next access.
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

    /// Lets nobody in from here on.
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

    /// Stops the statements that run; their accesses fail and end. Not where the volume says that
    /// they may go on: the news of a lock may come late, and what runs by now may have begun after
    /// the unlock.
    private func interrupt() {
        guard leavingInUse != nil else { return }
        if let now = store.volume.snapshot, store.keepsOpen(in: now) { return }
        // It may have been closed for good meanwhile.
        leavingInUse?.writer.interrupt()
    }

    /// What is to be closed when the last access has ended.
    private var leavingInUse: OpenDatabase? {
        state.withLock { $0.isLeaving && $0.accesses > 0 ? $0.opened : nil }
    }

    /// On `control`.
    private func closeIfLeaving() {
        let leaving = state.withLock { state -> (opened: OpenDatabase, hasTime: Bool)? in
            guard let opened = state.opened, state.isLeaving, state.accesses == 0, !state.isEnded
            else { return nil }
            state.opened = nil
            return (opened, state.reason == .locking && !state.isLost)
        }
        guard let leaving else { return }
        // Only an announced lock leaves time: a checkpoint goes through the mapped index, which a
        // reboot takes away. Should this fail, it is not used any more and closes when the last
        // reference goes.
        try? leaving.opened.close(checkpointing: leaving.hasTime && store.isReadable)
    }

    /// For good. Waits for the accesses that run, on the caller's thread.
    func close() throws { try close(checkpointing: store.isReadable) }

    /// As `close`, without waiting and as it is: by the time that this runs the volume may be on
    /// its way out.
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

    /// On `control`. Throws `locked` where it has to stay closed.
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
            // Descriptors of before the lock work again after it (row O13): accesses that are still
            // there go on.
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

    /// On `control`.
    private func openFile(isFirst: Bool) throws {
        let opened = try opening(isFirst: isFirst)
        let isWanted = state.withLock { state in
            guard !state.isEnded else { return false }
            state.opened = opened
            state.isLeaving = false
            state.isLost = false
            return true
        }
        if !isWanted { try opened.close(checkpointing: store.isReadable) }
    }

    /// Opened again where it failed and nothing tells why: a lock that came in between may be over
    /// already.
    private func opening(isFirst: Bool) throws -> OpenDatabase {
        var attempt = 1
        while true {
            do {
                return try store.open(isFirst: isFirst)
            } catch {
                let (explained, mayBeOver) = store.explained(error)
                guard mayBeOver, attempt < Self.openings else { throw explained }
                attempt += 1
            }
        }
    }
}
