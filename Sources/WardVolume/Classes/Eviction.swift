import Glibc
import WardFormat
import WardKeys
import WardSystem

/// One lock of some classes, step by step. Holds what the steps share.
///
/// Concurrency: the thread that decides about locks makes it, and one thread that serves no
/// requests runs it. All properties are constant.
public struct Eviction: Sendable {
    /// How long an eviction waits for the backing store to take accepted pages, once the keys are
    /// gone.
    private static let storePatience = Duration.seconds(2)
    /// Threads that make the kernel drop pages. While one waits for a write-back, the others go on.
    static let invalidationThreads = 3
    /// How long an eviction waits for write-backs that the kernel began before and does not wait
    /// for itself.
    private static let lateWriteBackPatience = Duration.milliseconds(400)
    /// How long an eviction waits, in total, for requests that hold files whose keys it has to
    /// load.
    private static let keyPatience = Duration.milliseconds(20)
    /// How long past the deadline an eviction waits, in total, for workers to finish their
    /// requests.
    private static let wipePatience = Duration.milliseconds(500)

    private let volume: Volume
    private let classes: ProtectionClassSet
    /// Classes whose open files stay usable.
    private let kept: ProtectionClassSet
    /// The other classes.
    private let closing: ProtectionClassSet
    /// The deadline, monotonic.
    private let end: Duration
    /// The number in `Evictions`.
    private let number: UInt64

    private var gate: ContentGate { volume.gate }
    private var nodes: VolumeNodes { volume.nodes }
    private var pending: PendingStores { volume.pending }

    /// Begins an eviction, which makes all earlier ones void.
    init(
        _ volume: Volume, of classes: ProtectionClassSet, keepOpenFiles: ProtectionClassSet,
        until end: Duration
    ) {
        self.volume = volume
        self.classes = classes
        self.end = end
        kept = keepOpenFiles.intersection(classes)
        closing = classes.subtracting(kept)
        number = volume.gate.evictions.begin()
    }

    /// Locks the classes as `Volume.evict` says. Runs once.
    public func run() -> EvictionReport {
        // A delayed refusal holds a page that the kernel may have to drop.
        volume.refusals.letGo()
        var report = EvictionReport()
        beginClosing()
        // Reads that passed the gate must have filled their pages before the pages are dropped.
        let isDrained = gate.contexts.drain(until: end)
        let targets = nodesToInvalidate(closed: true)
        report.invalidatedFiles = targets.count
        let areDropped = dropPages(of: targets, isDrained: isDrained)
        let areWiped = wipeKeys()
        report.deadlinePassed = !areDropped || !areWiped
        // The lock is done. State S4 also says that the data is in the backing files (row L1).
        if !report.deadlinePassed {
            _ = pending.wait(until: min(end, SystemClock.monotonic() + Eviction.storePatience))
        }
        report.pendingStoreBytes = pending.bytes
        return report
    }

    /// Closes the gate and wipes the keys at once.
    func runWithoutWaiting() {
        pending.refuse(true)
        gate.evictions.step(of: number) {
            for protectionClass in kept.classes {
                gate.classes.set(.openFilesOnly, for: protectionClass)
            }
            closeGate()
            gate.keyring.evict(classes)
            forgetUnusedKeys()
            forgetFileKeys()
        }
    }

    // MARK: Steps

    /// Sets the gate to closing. Files that stay usable get their keys before.
    private func beginClosing() {
        loadKeys(patience: Eviction.keyPatience)
        gate.evictions.step(of: number) {
            pending.refuse(false)
            for protectionClass in closing.classes {
                gate.classes.set(.closing, for: protectionClass)
            }
            for protectionClass in kept.classes {
                gate.classes.set(.openFilesOnly, for: protectionClass)
            }
        }
    }

    /// Makes the kernel write back and drop the pages of these nodes. Returns false if the deadline
    /// passed, or requests were still under way before (`isDrained`).
    private func dropPages(of targets: [Node], isDrained: Bool) -> Bool {
        var isInTime = invalidate(targets) && isDrained
        // Once more for pages that came back between the two.
        if isInTime {
            var again = nodesToInvalidate(closed: false)
            // Also files that were open at the first pass and are closed now.
            again += targets.filter {
                $0.file == nil && $0.cachedPages.exist.exchange(false, ordering: .relaxed)
            }
            isInTime = invalidate(again)
        }
        if isInTime {
            volume.kernel?.awaitWriteBacks(
                until: min(end, SystemClock.monotonic() + Eviction.lateWriteBackPatience))
        } else {
            // Past the deadline, write-backs that wait for buffer space fail, and the lock goes on
            // without them.
            gate.evictions.step(of: number) { pending.refuse(true) }
        }
        return isInTime
    }

    /// Closes the gate and wipes class keys, buffers and file keys. Returns false if a request did
    /// not end in time.
    private func wipeKeys() -> Bool {
        gate.evictions.step(of: number) {
            closeGate()
            loadKeys(patience: .zero)
            gate.keyring.evict(classes)
            forgetUnusedKeys()
        }
        let isInTime = gate.contexts.wipe(
            until: max(end, SystemClock.monotonic() + Eviction.wipePatience))
        gate.evictions.step(of: number) { forgetFileKeys() }
        return isInTime
    }

    private func closeGate() {
        for protectionClass in closing.classes { gate.classes.set(.closed, for: protectionClass) }
    }

    // MARK: Keys

    /// Wipes the keys of files that no program has open.
    private func forgetUnusedKeys() {
        nodes.open.forEachFile(of: kept) { file in
            if file.uses.kernelHandles.load(ordering: .sequentiallyConsistent) == 0 {
                file.key.forget()
            }
        }
    }

    /// Wipes the file keys. Then opens class B's gate for new files, not before: `openFilesOnly`
    /// admits each file whose key is in memory. A read would fill pages that nothing drops.
    private func forgetFileKeys() {
        nodes.open.forEachFile(of: closing) { $0.key.forget() }
        if closing.contains(.completeUnlessOpen) {
            gate.classes.set(.openFilesOnly, for: .completeUnlessOpen)
        }
    }

    /// Loads the keys of open files that stay usable while locked. A descriptor from before a
    /// reboot may be unused since the unlock (row O4). If a request holds a file's lock, tries
    /// again until `patience` is over: that request may wait for the backing store.
    private func loadKeys(patience: Duration) {
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
        try? file.key.withKey(load: { () throws(Errno) in try volume.loadKey(file, nil) }) { _ in }
    }

    // MARK: Cached pages

    /// Returns the nodes whose pages may be in the kernel's cache: all of `closing`, and those of
    /// `kept` that no program has open.
    ///
    /// `closed`: includes files that are not open. They can't get pages again once the gate is
    /// closing.
    private func nodesToInvalidate(closed: Bool) -> [Node] {
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
    private func invalidate(_ nodes: [Node]) -> Bool {
        guard volume.kernel != nil, !nodes.isEmpty else { return true }
        let progress = InvalidationProgress(count: nodes.count)
        let body: @Sendable () -> Void = { [self] in
            while let index = progress.next() {
                let node = nodes[index]
                let isDone =
                    gate.drops.announce(for: node.protectionClass ?? .none)
                    && gate.drops.perform({ volume.isClosed(node) }) {
                        volume.dropPages(of: node.id)
                    }
                if !isDone { keepInMind(node) }
                progress.finish(index)
            }
        }
        var threads = 0
        for _ in 0..<min(Eviction.invalidationThreads, nodes.count) {
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
        volume.background.add { [volume] in
            for node in written {
                volume.report(
                    .lost(
                        path: volume.path(of: node),
                        reason:
                            "mapped pages that were not written back when the lock's time was over"
                    ))
            }
        }
    }
}
