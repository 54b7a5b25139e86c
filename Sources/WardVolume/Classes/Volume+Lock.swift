import Glibc
import Synchronization
import WardFormat
import WardKeys
import WardSystem

// The lock, step by step.
extension Volume {
    /// How long `evict` waits for the backing store to take accepted pages, once the keys are gone.
    static let storePatience = Duration.seconds(2)
    /// Threads that make the kernel drop pages. While one waits for a write-back, the others go on.
    static let invalidationThreads = 3
    /// How long `evict` waits for write-backs that the kernel began before and does not wait for
    /// itself.
    static let lateWriteBackPatience = Duration.milliseconds(400)
    /// How long `evict` waits, in total, for requests that hold files whose keys it has to load.
    static let keyPatience = Duration.milliseconds(20)
    /// How long past the deadline `evict` waits, in total, for workers to finish their requests.
    static let wipePatience = Duration.milliseconds(500)

    /// Locks these classes. The gate goes to closing, and the kernel writes mapped pages back and
    /// drops them. Then the gate closes, requests drain, and class keys, file keys and buffers are
    /// wiped.
    ///
    /// Runs on a thread that serves no requests. Open files of classes in `keepOpenFiles` (B at a
    /// lock) keep their keys until their last close. Returns within about `deadline`. If the kernel
    /// could not write its pages back in time, the keys are wiped even so. The report then says
    /// that the connection must be aborted.
    ///
    /// A later `admit` or `abandonEviction` makes this eviction void: it then touches neither gate
    /// nor keys.
    public func evict(
        _ classes: ProtectionClassSet, keepOpenFiles: ProtectionClassSet, deadline: Duration
    ) -> EvictionReport {
        let end = SystemClock.monotonic() + deadline
        // A delayed refusal holds a page that the kernel may have to drop.
        refusals.letGo()
        var report = EvictionReport()
        let kept = keepOpenFiles.intersection(classes)
        let closing = classes.subtracting(kept)
        let eviction = gate.evictions.begin()
        loadKeys(of: kept, patience: Volume.keyPatience)
        gate.evictions.step(of: eviction) {
            pending.refuse(false)
            for protectionClass in closing.classes {
                gate.classes.set(.closing, for: protectionClass)
            }
            for protectionClass in kept.classes {
                gate.classes.set(.openFilesOnly, for: protectionClass)
            }
        }
        // Reads that passed the gate must have filled their pages before the pages are dropped.
        var isLate = false
        gate.contexts.forEach {
            if !$0.drain(wiping: false, patience: end - SystemClock.monotonic()) { isLate = true }
        }

        let targets = nodesToInvalidate(closing: closing, kept: kept, closed: true)
        report.invalidatedFiles = targets.count
        report.deadlinePassed = !invalidate(targets, until: end) || isLate
        // Once more for pages that came back between the two.
        if !report.deadlinePassed {
            var again = nodesToInvalidate(closing: closing, kept: kept, closed: false)
            // Also files that were open at the first pass and are closed now.
            again += targets.filter {
                $0.file == nil && $0.cachedPages.exist.exchange(false, ordering: .relaxed)
            }
            report.deadlinePassed = !invalidate(again, until: end)
        }
        if !report.deadlinePassed {
            kernel?.awaitWriteBacks(
                until: min(end, SystemClock.monotonic() + Volume.lateWriteBackPatience))
        }
        // Past the deadline, write-backs that wait for buffer space fail, and the lock goes on
        // without them.
        if report.deadlinePassed { gate.evictions.step(of: eviction) { pending.refuse(true) } }

        gate.evictions.step(of: eviction) {
            close(closing)
            loadKeys(of: kept, patience: .zero)
            gate.keyring.evict(classes)
            forgetUnusedKeys(of: kept)
        }
        let wipeEnd = max(end, SystemClock.monotonic() + Volume.wipePatience)
        report.deadlinePassed = !wipeContexts(until: wipeEnd) || report.deadlinePassed
        gate.evictions.step(of: eviction) {
            forgetFileKeys(of: closing)
        }
        // The lock is done. State S4 also says that the data is in the backing files (row L1).
        if !report.deadlinePassed {
            _ = pending.wait(until: min(end, SystemClock.monotonic() + Volume.storePatience))
        }
        report.pendingStoreBytes = pending.bytes
        return report
    }

    /// Replaces an eviction that does not return: closes the gate and wipes the keys without
    /// waiting. Should the eviction return later, it can touch neither.
    public func abandonEviction(
        of classes: ProtectionClassSet, keepOpenFiles: ProtectionClassSet
    ) {
        let closing = classes.subtracting(keepOpenFiles)
        let eviction = gate.evictions.begin()
        pending.refuse(true)
        gate.evictions.step(of: eviction) {
            for protectionClass in keepOpenFiles.intersection(classes).classes {
                gate.classes.set(.openFilesOnly, for: protectionClass)
            }
            close(closing)
            gate.keyring.evict(classes)
            forgetUnusedKeys(of: keepOpenFiles.intersection(classes))
            forgetFileKeys(of: closing)
        }
    }

    /// Wipes the keys of files that no program has open.
    private func forgetUnusedKeys(of kept: ProtectionClassSet) {
        nodes.open.forEachFile(of: kept) { file in
            if file.uses.kernelHandles.load(ordering: .sequentiallyConsistent) == 0 {
                file.key.forget()
            }
        }
    }

    /// Wipes the keys and content that `abandonEviction` left in the contexts of busy workers.
    public func wipeThreads(patience: Duration) {
        _ = wipeContexts(until: SystemClock.monotonic() + patience)
    }

    private func close(_ classes: ProtectionClassSet) {
        for protectionClass in classes.classes { gate.classes.set(.closed, for: protectionClass) }
    }

    /// Wipes the file keys. Then opens class B's gate for new files, not before: `openFilesOnly`
    /// admits each file whose key is in memory. A read would fill pages that nothing drops.
    private func forgetFileKeys(of classes: ProtectionClassSet) {
        nodes.open.forEachFile(of: classes) { $0.key.forget() }
        if classes.contains(.completeUnlessOpen) {
            gate.classes.set(.openFilesOnly, for: .completeUnlessOpen)
        }
    }

    /// Waits for requests under way and wipes cipher contexts and plaintext. Returns false if a
    /// request did not end in time.
    private func wipeContexts(until end: Duration) -> Bool {
        var isComplete = true
        gate.contexts.forEach {
            if !$0.drain(wiping: true, patience: end - SystemClock.monotonic()) {
                isComplete = false
            }
        }
        return isComplete
    }

    /// Classes whose files can be opened now. A class whose key has just come is included only
    /// after `admit`.
    public var available: ProtectionClassSet {
        gate.classes.open.intersection(gate.keyring.available)
    }

    /// Opens the gate for classes whose keys are now in the keyring. Does no work per file (row
    /// L4). Right after a lock it waits for the drops that the lock began (`PageDrops`), for a
    /// moment at most.
    public func admit(_ classes: ProtectionClassSet) {
        let eviction = gate.evictions.begin()
        gate.drops.open(classes) {
            gate.evictions.step(of: eviction) {
                for protectionClass in classes.classes {
                    gate.classes.set(.open, for: protectionClass)
                }
            }
        }
        refusals.letGo()
    }

    /// Whether the kernel may hold mapped pages of these classes that it has not written back.
    public func mayHaveDirtyPages(in classes: ProtectionClassSet) -> Bool {
        var isMapped = false
        nodes.open.forEachFile(of: classes) {
            if $0.uses.mappableHandles.load(ordering: .relaxed) > 0 { isMapped = true }
        }
        return isMapped
    }

    /// Loads the keys of open files that stay usable while locked. A descriptor from before a
    /// reboot may be unused since the unlock (row O4). If a request holds a file's lock, tries
    /// again until `patience` is over: that request may wait for the backing store.
    private func loadKeys(of kept: ProtectionClassSet, patience: Duration) {
        let end = SystemClock.monotonic() + patience
        nodes.open.forEachFile(of: kept) { file in
            guard !file.hasKey, file.uses.kernelHandles.load(ordering: .sequentiallyConsistent) > 0
            else { return }
            while !file.tryWithReadLock({ loadKey(of: file) }), SystemClock.monotonic() < end {
                usleep(100)
            }
        }
    }

    private func loadKey(of file: OpenFile) {
        guard file.header?.wrappedKey.isEmpty == false else { return }
        try? file.key.withKey(load: { () throws(Errno) in try loadKey(file, nil) }) { _ in }
    }

    /// Returns the nodes whose pages may be in the kernel's cache: all of `closing`, and those of
    /// `kept` that no program has open.
    ///
    /// `closed`: includes files that are not open. They can't get pages again once the gate is
    /// closing.
    private func nodesToInvalidate(
        closing: ProtectionClassSet, kept: ProtectionClassSet, closed: Bool
    ) -> [Node] {
        func isMeant(_ node: Node) -> Bool {
            guard node.isRegular, let protectionClass = node.protectionClass else { return false }
            if closing.contains(protectionClass) {
                // An open file can get pages again at any moment until the gate is closed.
                return node.cachedPages.exist.exchange(node.file != nil, ordering: .relaxed)
            }
            if kept.contains(protectionClass), !node.isHeldByKernel {
                return node.cachedPages.exist.exchange(false, ordering: .relaxed)
            }
            return false
        }
        let open = nodes.open.all
        let files = open.values.filter(isMeant)
        guard closed else { return files }
        // The kernel knows many nodes, and few of them have pages.
        return files
            + nodes.table.all { $0.cachedPages.exist.load(ordering: .relaxed) }
            .filter { open[ObjectIdentifier($0)] == nil && isMeant($0) }
    }

    /// Makes the kernel drop the nodes' pages, on separate threads: a write-back that never ends
    /// must hold up neither the lock nor other files. Returns false at `end` and reports the pages
    /// that may be lost. Classes that were opened again meanwhile keep their pages.
    private func invalidate(_ nodes: [Node], until end: Duration) -> Bool {
        guard let kernel, !nodes.isEmpty else { return true }
        let progress = InvalidationProgress(count: nodes.count)
        let body: @Sendable () -> Void = { [self] in
            while let index = progress.next() {
                let node = nodes[index]
                let isDone =
                    gate.drops.announce(for: node.protectionClass ?? .none)
                    && gate.drops.perform({ isClosed(node) }) {
                        kernel.invalidateContent(of: node.id)
                    }
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
        // Without a thread it is done here. The caller of this eviction has a deadline of its own.
        if threads == 0 { body() }
        if progress.wait(until: end) { return true }
        let rest = progress.cancel().map { nodes[$0] }
        for node in rest { keepInMind(node) }
        reportLost(rest)
        return false
    }

    /// Marks the node for the next eviction: its pages were not dropped.
    private func keepInMind(_ node: Node) { node.cachedPages.exist.store(true, ordering: .relaxed) }

    /// Reports files whose mapped pages the kernel did not write back in time. Runs in the
    /// background, because the backing store may hang while a path is read.
    private func reportLost(_ nodes: [Node]) {
        let written = nodes.filter {
            ($0.file?.uses.mappableHandles.load(ordering: .relaxed) ?? 0) > 0
        }
        guard !written.isEmpty else { return }
        background.add { [self] in
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

    /// Assigns nodes to threads, and knows which nodes are done.
    private final class InvalidationProgress: Sendable {
        private struct State {
            var next = 0
            var doing: Set<Int> = []
            var isCancelled = false
        }

        private let count: Int
        private let state = Mutex(State())
        /// Signalled when the last node is done.
        private let changes = FutexWord()

        init(count: Int) { self.count = count }

        func next() -> Int? {
            state.withLock { state in
                guard state.next < count, !state.isCancelled else { return nil }
                defer { state.next += 1 }
                state.doing.insert(state.next)
                return state.next
            }
        }

        func finish(_ index: Int) {
            let isLast = state.withLock { state in
                state.doing.remove(index)
                return isDone(state)
            }
            if isLast { changes.signalAll() }
        }

        /// Waits until all nodes are done; false where `end` (monotonic) came first.
        func wait(until end: Duration) -> Bool {
            changes.wait(deadline: end) { state.withLock { isDone($0) } }
        }

        private func isDone(_ state: State) -> Bool {
            state.next == count && state.doing.isEmpty
        }

        /// Stops the threads from taking more nodes. Returns the indices of the nodes that are not
        /// done.
        func cancel() -> [Int] {
            state.withLock { state in
                state.isCancelled = true
                return state.doing.sorted() + Array(state.next..<count)
            }
        }
    }
}
