import CWardLinux
import Glibc
import Synchronization
import WardFormat
import WardSystem

// Epochs, durable points and the end of a doubt.
extension Volume {
    /// Whether a durable point is due: something was written since the last one.
    public var hasUnsyncedChanges: Bool {
        durability.dirt.needsPoint
    }

    /// About how many bytes were written since the last durable point. Includes bytes that a
    /// program synced itself.
    public var unsyncedBytes: Int { durability.dirt.unsyncedBytes }

    /// Makes everything written so far durable and advances the epoch. The daemon calls it every
    /// few minutes of activity, at a lock and at shutdown, from a thread that is no worker.
    public func durablePoint() throws(Errno) { try durablePoint(closing: false) }

    /// Returns when the work of earlier calls on the background thread is done. For tests.
    package func finishBackgroundWork() { background.drain() }

    /// Ends the volume after the last request: writes hints, makes a durable point and marks the
    /// volume clean.
    public func close() throws(Errno) {
        store.ahead.stop()
        store.removedFiles.finish()
        finishPending(within: Volume.closePatience)
        background.drain()
        // The mount's notes end with it. The owner has to accept each class that has no seal then.
        sealChanges()
        for node in nodes.open.all.values {
            guard let file = node.file else { continue }
            file.withWriteAccess { access in
                putHint(access)
                file.key.forget()
            }
        }
        if !durability.moved.areNone {
            // Their headers follow only once the moves are durable. A failure shows below, too.
            try? durablePoint(closing: false)
            background.drain()
        }
        gate.capsules?.end()
        try durablePoint(closing: true)
    }

    /// Finishes failed cuts behind open files, so that a durable point stores their present size.
    /// Returns the first file and error if a cut fails again. The file's next sync or the next
    /// durable point then retries.
    func finishCuts() -> (path: String, error: Errno)? {
        var failure: (path: String, error: Errno)?
        for node in nodes.open.all.values {
            // The handle keeps the file open meanwhile: another thread could reopen and change a
            // closed file.
            let file = node.openLock.withLock {
                let file = node.file.flatMap { $0.published.hasUncutPages ? $0 : nil }
                file?.uses.all.value += 1
                return file
            }
            guard let file else { continue }
            defer { release(file, nil) }
            file.withWriteAccess { access in
                guard file.extent.hasUncutPages else { return }
                access.extent.cutIsDue()
                do throws(Errno) {
                    try removeHint(access)
                } catch {
                    failure = failure ?? (path(of: node), error)
                }
            }
        }
        return failure
    }

    /// Holds the epoch while a backup is made. Durable points still sync, but the epoch and the
    /// state record stay. So the copied record is right for each copied page. `close` advances the
    /// epoch even so.
    public func holdEpoch(_ isHeld: Bool) { durability.dirt.holdEpoch(isHeld) }

    private func durablePoint(closing: Bool) throws(Errno) {
        if isReadOnly { return }
        let failure = finishCuts()
        let moved = durability.moved.take()
        var isDurable = false
        defer { settle(moved, isDurable: isDurable, closing: closing) }
        try durability.advance(closing: closing) { awaitWrites(before: $0, closing: closing) }
        isDurable = !durability.hasFailedSync
        if let failure, !closing {
            durability.dirt.noteChange()
            report(
                .note(
                    "no durable point: the store can't cut \(failure.path) to its size: \(failure.error)"
                )
            )
            throw failure.error
        }
    }

    /// Has the headers of moved files written once the moves are durable.
    private func settle(_ moved: [Node], isDurable: Bool, closing: Bool) {
        if moved.isEmpty { return }
        if isDurable, !closing {
            background.add { [self] in settleMovedFiles(moved) }
            return
        }
        for node in moved {
            if !closing { durability.moved.note(node) { nodes.table.retain($0) } }
            nodes.table.release(node, lookups: 1)
        }
    }

    /// Waits for requests that began before the epoch `now`, and for pages that were accepted at a
    /// lock before it. `close` has waited for these pages already, for a limited time.
    func awaitWrites(before now: UInt32, closing: Bool) {
        while gate.contexts.areWriting(before: now) { usleep(50) }
        if !closing { awaitStores(before: now) }
    }

    // MARK: Doubt

    /// Mends files of doubtful epochs (`Mender`). Runs on a background thread after an unlock or a
    /// durable point. Returns when no more can be read now, or when `shouldStop` says so. The doubt
    /// ends when every file was readable.
    public func mendDoubtfulFiles(shouldStop: @escaping () -> Bool) {
        guard !isReadOnly, durability.doubt.isOpen else { return }
        guard let mender = Mender(self, shouldStop: shouldStop) else {
            return durability.doubt.noteMendingDue(true)
        }
        mender.run()
    }

    /// Mends one file (`FileMender.mend`).
    func mendFile(
        _ node: Node, _ context: WorkerContext, _ shouldStop: @escaping () -> Bool
    ) -> Bool {
        FileMender(self, context, shouldStop: shouldStop).mend(node)
    }

    /// Removes these intervals from the doubt: every file was read and mended since. Returns false
    /// and keeps them if the state record could not be written. The same holds if a change was left
    /// half-done since `before` (a value of `halfDoneChanges`), perhaps in one of them.
    @discardableResult
    func endDoubt(of intervals: [ClosedRange<UInt32>], ifHalfDoneIs before: Int) -> Bool {
        // These intervals excuse cuts that are not finished.
        guard finishCuts() == nil else { return false }
        guard durability.doubt.end(intervals, ifHalfDoneIs: before) else { return false }
        do throws(Errno) {
            try durablePoint()
        } catch {
            durability.doubt.change { $0 = intervals + $0.filter { !intervals.contains($0) } }
            return false
        }
        report(
            .note("every file of the last unclean end was checked: no epoch is in doubt any more"))
        return true
    }
}
