import Glibc
import Synchronization
import WardFormat
import WardKeys
import WardSystem

// The lock, step by step.
extension Volume {
    /// How long `evict` waits, once the keys are gone, for the store to take what was accepted.
    static let storePatience = Duration.seconds(2)
    /// Threads that have the kernel drop pages. One that waits for a write-back leaves the others.
    static let invalidationThreads = 3
    /// For write-backs that the kernel has begun and not sent yet, where it does not wait for them
    /// itself.
    static let lateWriteBackPatience = Duration.milliseconds(400)
    /// For requests that hold files of which a key is to be loaded, all of them together.
    static let keyPatience = Duration.milliseconds(20)
    /// For threads at a request, past the deadline, all of them together.
    static let wipePatience = Duration.milliseconds(500)

    /// The lock recipe for these classes: gate to closing, mapped pages written back and dropped by
    /// the kernel, gate closed, requests drained, class keys, file keys and buffers wiped.
    ///
    /// Runs on a thread that serves no requests. Of classes in `keepOpenFiles` (B at a lock) files
    /// that are open keep their keys until their last close. Returns within `deadline` come what
    /// may: where the kernel could not write its pages back in time the report says so, the keys
    /// are gone all the same, and the connection has to be aborted.
    ///
    /// An `admit` or `abandonEviction` in between makes it void: from then on it touches neither
    /// gate nor keys.
    public func evict(
        _ classes: ProtectionClassSet, keepOpenFiles: ProtectionClassSet, deadline: Duration
    ) -> EvictionReport {
        let end = SystemClock.monotonic() + deadline
        // The kernel holds the page of one that waits, and may want to drop it.
        refusals.letGo()
        var report = EvictionReport()
        let kept = keepOpenFiles.intersection(classes)
        let closing = classes.subtracting(kept)
        let eviction = beginEviction()
        loadKeys(of: kept, patience: Volume.keyPatience)
        step(of: eviction) {
            pending.refuse(false)
            for protectionClass in closing.classes { gate.set(.closing, for: protectionClass) }
            for protectionClass in kept.classes { gate.set(.openFilesOnly, for: protectionClass) }
        }
        // Reads that were let through before must have filled their pages before these are dropped.
        var isLate = false
        forEachContext {
            if !$0.drain(wiping: false, patience: end - SystemClock.monotonic()) { isLate = true }
        }

        let targets = nodesToInvalidate(closing: closing, kept: kept, closed: true)
        report.invalidatedFiles = targets.count
        report.deadlinePassed = !invalidate(targets, until: end) || isLate
        // Once more for pages that came back between the two.
        if !report.deadlinePassed {
            var again = nodesToInvalidate(closing: closing, kept: kept, closed: false)
            // And what was open then, and is not now.
            again += targets.filter {
                $0.file == nil && $0.hasCachedPages.exchange(false, ordering: .relaxed)
            }
            report.deadlinePassed = !invalidate(again, until: end)
        }
        if !report.deadlinePassed {
            kernel?.awaitWriteBacks(
                until: min(end, SystemClock.monotonic() + Volume.lateWriteBackPatience))
        }
        // Who waits for room among the pages to be stored is not waited for any more.
        if report.deadlinePassed { step(of: eviction) { pending.refuse(true) } }

        step(of: eviction) {
            close(closing)
            loadKeys(of: kept, patience: .zero)
            keyring.evict(classes)
            forgetUnusedKeys(of: kept)
        }
        let wipeEnd = max(end, SystemClock.monotonic() + Volume.wipePatience)
        report.deadlinePassed = !wipeContexts(until: wipeEnd) || report.deadlinePassed
        step(of: eviction) {
            forgetFileKeys(of: closing)
        }
        // The lock is done; that its data is in the backing files is part of what S4 says (row L1).
        if !report.deadlinePassed {
            _ = pending.wait(until: min(end, SystemClock.monotonic() + Volume.storePatience))
        }
        report.pendingStoreBytes = pending.bytes
        return report
    }

    /// Ends an eviction that does not come back: closes the gate and wipes the keys without waiting
    /// for anybody, and keeps the eviction from touching either once it does come back.
    public func abandonEviction(
        of classes: ProtectionClassSet, keepOpenFiles: ProtectionClassSet
    ) {
        let closing = classes.subtracting(keepOpenFiles)
        let eviction = beginEviction()
        pending.refuse(true)
        step(of: eviction) {
            for protectionClass in keepOpenFiles.intersection(classes).classes {
                gate.set(.openFilesOnly, for: protectionClass)
            }
            close(closing)
            keyring.evict(classes)
            forgetUnusedKeys(of: keepOpenFiles.intersection(classes))
            forgetFileKeys(of: closing)
        }
    }

    /// Of files that no program has open.
    private func forgetUnusedKeys(of kept: ProtectionClassSet) {
        forEachOpenFile(of: kept) { file in
            if file.kernelHandles.load(ordering: .sequentiallyConsistent) == 0 { file.forgetKey() }
        }
    }

    /// After `abandonEviction`, which waits for nobody: wipes what threads at a request had left of
    /// keys and content.
    public func wipeThreads(patience: Duration) {
        _ = wipeContexts(until: SystemClock.monotonic() + patience)
    }

    private func close(_ classes: ProtectionClassSet) {
        for protectionClass in classes.classes { gate.set(.closed, for: protectionClass) }
    }

    /// Ends with class B's gate open for new files. It lets whoever finds a file's key in memory
    /// pass, so not before the keys are gone: a read would fill pages that nobody drops any more.
    private func forgetFileKeys(of classes: ProtectionClassSet) {
        forEachOpenFile(of: classes) { $0.forgetKey() }
        if classes.contains(.completeUnlessOpen) {
            gate.set(.openFilesOnly, for: .completeUnlessOpen)
        }
    }

    // MARK: One at a time

    private func beginEviction() -> UInt64 {
        evictionLock.lockNow()
        defer { evictionLock.unlock() }
        currentEviction += 1
        return currentEviction
    }

    /// Runs `body`, which waits for nothing, unless something later than this eviction has begun.
    private func step(of eviction: UInt64, _ body: () -> Void) {
        evictionLock.lockNow()
        defer { evictionLock.unlock() }
        if eviction == currentEviction { body() }
    }

    /// Waits for requests under way and wipes ciphers and plaintext. False where one did not end in
    /// time.
    private func wipeContexts(until end: Duration) -> Bool {
        var isComplete = true
        forEachContext {
            if !$0.drain(wiping: true, patience: end - SystemClock.monotonic()) {
                isComplete = false
            }
        }
        return isComplete
    }

    /// Classes whose files can be opened now. When its key has come a class is not among them
    /// before `admit`.
    public var available: ProtectionClassSet { gate.open.intersection(keyring.available) }

    /// Opens the gate for classes whose keys are now in the keyring. No work per file (row L4);
    /// right after a lock it waits for what that has the kernel drop (`PageDrops`), for a moment at
    /// most.
    public func admit(_ classes: ProtectionClassSet) {
        let eviction = beginEviction()
        drops.open(classes) {
            step(of: eviction) {
                for protectionClass in classes.classes { gate.set(.open, for: protectionClass) }
            }
        }
        refusals.letGo()
    }

    /// Whether the kernel may hold mapped pages of these classes that it has not written back.
    public func mayHaveDirtyPages(in classes: ProtectionClassSet) -> Bool {
        var isMapped = false
        forEachOpenFile(of: classes) {
            if $0.mappableHandles.load(ordering: .relaxed) > 0 { isMapped = true }
        }
        return isMapped
    }

    /// Runs `body`, which waits for no store, for each. Whoever closes a file takes these locks
    /// while it still holds it: the last to let go of one, which closes it in the store, is never
    /// the thread that locks.
    private func forEachOpenFile(
        of classes: ProtectionClassSet, _ body: (OpenFile) -> Void
    ) {
        openNodesLock.lockNow()
        defer { openNodesLock.unlock() }
        for node in openNodes.values {
            if let file = node.file, classes.contains(file.protectionClass) { body(file) }
        }
        examined.withLock { examined in
            for file in examined.values where classes.contains(file.protectionClass) { body(file) }
        }
    }

    /// Files that stay usable while locked need their keys now: a descriptor from before a reboot
    /// may not have been used since the unlock (row O4). A file that a request holds is tried again
    /// for `patience`: that request may be waiting for the store.
    private func loadKeys(of kept: ProtectionClassSet, patience: Duration) {
        let end = SystemClock.monotonic() + patience
        forEachOpenFile(of: kept) { file in
            guard !file.hasKey, file.kernelHandles.load(ordering: .sequentiallyConsistent) > 0
            else { return }
            var isLocked = file.lock.tryLockRead()
            while !isLocked, SystemClock.monotonic() < end {
                usleep(100)
                isLocked = file.lock.tryLockRead()
            }
            guard isLocked else { return }
            defer { file.lock.unlock() }
            if file.header?.wrappedKey.isEmpty == false {
                try? file.withKey(load: { () throws(Errno) in try loadKey(file, nil) }) { _ in }
            }
        }
    }

    /// Nodes whose pages may be in the kernel's cache: all of `closing`, and those of `kept` that
    /// nobody has open.
    ///
    /// `closed`: of files that nobody has open, too; once the gate is closing none of them can get
    /// pages again.
    private func nodesToInvalidate(
        closing: ProtectionClassSet, kept: ProtectionClassSet, closed: Bool
    ) -> [Node] {
        func isMeant(_ node: Node) -> Bool {
            guard node.isRegular, let protectionClass = node.protectionClass else { return false }
            if closing.contains(protectionClass) {
                // An open file can get pages again at any moment until the gate is closed.
                return node.hasCachedPages.exchange(node.file != nil, ordering: .relaxed)
            }
            if kept.contains(protectionClass), !node.isHeldByKernel {
                return node.hasCachedPages.exchange(false, ordering: .relaxed)
            }
            return false
        }
        openNodesLock.lockNow()
        let open = openNodes
        openNodesLock.unlock()
        var nodes = open.values.filter(isMeant)
        guard closed else { return nodes }
        // Hardly any of the many that the kernel knows has pages.
        nodes += table.all { $0.hasCachedPages.load(ordering: .relaxed) }
            .filter { open[ObjectIdentifier($0)] == nil && isMeant($0) }
        return nodes
    }

    /// Has the kernel drop the nodes' pages, on threads of its own: a write-back that never ends
    /// must not hold the lock, nor other files' pages. False where `end` came first; then what may
    /// be lost is reported. What was opened again meanwhile stays.
    private func invalidate(_ nodes: [Node], until end: Duration) -> Bool {
        guard let kernel, !nodes.isEmpty else { return true }
        let progress = InvalidationProgress(count: nodes.count)
        let body: @Sendable () -> Void = { [self] in
            while let index = progress.next() {
                let node = nodes[index]
                let isDone =
                    drops.announce(for: node.protectionClass ?? .none)
                    && drops.perform({ isClosed(node) }) { kernel.invalidateContent(of: node.id) }
                if !isDone { keepInMind(node) }
                progress.finish(index)
            }
        }
        var threads = 0
        for _ in 0..<min(Volume.invalidationThreads, nodes.count) {
            guard let thread = try? SystemThread("ward-evict", body) else { break }
            thread.detach()
            threads += 1
        }
        // Without a thread to be had it is done here; who waits for this eviction is bounded once
        // more.
        if threads == 0 { body() }
        while !progress.isDone {
            if SystemClock.monotonic() >= end {
                let rest = progress.cancel().map { nodes[$0] }
                for node in rest { keepInMind(node) }
                reportLost(rest)
                return false
            }
            usleep(100)
        }
        return true
    }

    /// Its pages were not dropped: the next eviction has to.
    private func keepInMind(_ node: Node) { node.hasCachedPages.store(true, ordering: .relaxed) }

    /// Files whose mapped pages the kernel could not be made to write back in time. Their names may
    /// have to be read from the store, which may hang: not here.
    private func reportLost(_ nodes: [Node]) {
        let written = nodes.filter {
            ($0.file?.mappableHandles.load(ordering: .relaxed) ?? 0) > 0
        }
        guard !written.isEmpty else { return }
        background.run { [self] in
            for node in written {
                report(
                    .lost(
                        path: path(of: node),
                        reason:
                            "mapped pages that were not written back when the lock's time was over"
                    ))
            }
        }
    }

    /// Who of the threads does which node, and which are done.
    private final class InvalidationProgress: Sendable {
        private struct State {
            var next = 0
            var doing: Set<Int> = []
            var isCancelled = false
        }

        private let count: Int
        private let state = Mutex(State())

        init(count: Int) { self.count = count }

        func next() -> Int? {
            state.withLock { state in
                guard state.next < count, !state.isCancelled else { return nil }
                defer { state.next += 1 }
                state.doing.insert(state.next)
                return state.next
            }
        }

        func finish(_ index: Int) { state.withLock { _ = $0.doing.remove(index) } }

        var isDone: Bool { state.withLock { $0.next == count && $0.doing.isEmpty } }

        /// Nothing more is begun. The indices of nodes that are not done.
        func cancel() -> [Int] {
            state.withLock { state in
                state.isCancelled = true
                return state.doing.sorted() + Array(state.next..<count)
            }
        }
    }
}
