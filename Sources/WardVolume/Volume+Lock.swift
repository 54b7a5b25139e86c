import Glibc
import Synchronization
import WardFormat
import WardKeys
import WardSystem

// The lock, step by step (design §7).
extension Volume {
    /// The lock recipe for these classes: gate to closing, mapped pages written back and dropped by the kernel, gate
    /// closed, requests drained, class keys, file keys and buffers wiped.
    ///
    /// Runs on a thread that serves no requests. Of classes in `keepOpenFiles` (B at a lock) files that are open keep
    /// their keys until their last close. Returns within `deadline` come what may: where the kernel could not write its
    /// pages back in time the report says so, the keys are gone all the same, and the connection has to be aborted.
    public func evict(
        _ classes: ProtectionClassSet, keepOpenFiles: ProtectionClassSet, deadline: Duration
    ) -> EvictionReport {
        let end = SystemClock.monotonic() + deadline
        var report = EvictionReport()
        let kept = keepOpenFiles.intersection(classes)
        let closing = classes.subtracting(kept)
        loadKeys(of: kept)
        for protectionClass in closing.classes { gate.set(.closing, for: protectionClass) }
        for protectionClass in kept.classes { gate.set(.openFilesOnly, for: protectionClass) }
        // Reads that were let through before must have filled their pages before these are dropped.
        var isLate = false
        forEachContext {
            if !$0.drain(wiping: false, patience: end - SystemClock.monotonic()) { isLate = true }
        }

        let targets = nodesToInvalidate(closing: closing, kept: kept)
        report.invalidatedFiles = targets.count
        report.deadlinePassed = !invalidate(targets, until: end) || isLate
        // Once more for pages that came back between the two.
        if !report.deadlinePassed {
            let again = nodesToInvalidate(closing: closing, kept: kept)
            report.deadlinePassed = !invalidate(again, until: end)
        }

        for protectionClass in closing.classes { gate.set(.closed, for: protectionClass) }
        keyring.evict(classes)
        report.deadlinePassed = !wipeContexts(until: end) || report.deadlinePassed
        for file in openFiles(of: closing) { file.forgetKey() }
        // Class B lets whoever finds a file's key in memory pass, so not before the keys are gone: a read would fill pages
        // that nobody drops any more.
        if closing.contains(.completeUnlessOpen) {
            gate.set(.openFilesOnly, for: .completeUnlessOpen)
        }
        return report
    }

    /// Waits for requests under way and wipes ciphers and plaintext. False where one did not end in time.
    private func wipeContexts(until end: Duration) -> Bool {
        var isComplete = true
        forEachContext {
            let patience = max(.milliseconds(200), end - SystemClock.monotonic())
            if !$0.drain(wiping: true, patience: patience) { isComplete = false }
        }
        return isComplete
    }

    /// Opens the gate for classes whose keys are now in the keyring. No work per file (row L4).
    public func admit(_ classes: ProtectionClassSet) {
        for protectionClass in classes.classes { gate.set(.open, for: protectionClass) }
    }

    private func openFiles(of classes: ProtectionClassSet) -> [OpenFile] {
        openNodesLock.lockNow()
        defer { openNodesLock.unlock() }
        return openNodes.values.compactMap { node in
            node.file.flatMap { classes.contains($0.protectionClass) ? $0 : nil }
        }
    }

    /// Files that stay usable while locked need their keys now: a descriptor from before a reboot may not have been used
    /// since the unlock (row O4).
    private func loadKeys(of kept: ProtectionClassSet) {
        for file in openFiles(of: kept) where !file.hasKey {
            guard file.lock.tryLockRead() else { continue }
            defer { file.lock.unlock() }
            if file.header?.wrappedKey.isEmpty == false {
                try? file.withKey(load: { () throws(Errno) in try loadKey(file) }) { _ in }
            }
        }
    }

    /// Nodes whose pages may be in the kernel's cache: all of `closing`, and those of `kept` that nobody has open.
    private func nodesToInvalidate(
        closing: ProtectionClassSet, kept: ProtectionClassSet
    ) -> [Node] {
        openNodesLock.lockNow()
        var nodes = Array(openNodes.values)
        openNodesLock.unlock()
        let open = Set(nodes.map(ObjectIdentifier.init))
        for node in table.all() where !open.contains(ObjectIdentifier(node)) { nodes.append(node) }
        return nodes.filter { node in
            guard node.isRegular, let protectionClass = node.protectionClass else { return false }
            if closing.contains(protectionClass) {
                // An open file can get pages again at any moment until the gate is closed.
                return node.hasCachedPages.exchange(node.file != nil, ordering: .relaxed)
            }
            if kept.contains(protectionClass), node.file == nil {
                return node.hasCachedPages.exchange(false, ordering: .relaxed)
            }
            return false
        }
    }

    /// Has the kernel drop the nodes' pages, on a thread of its own: a write-back that never ends must not hold the
    /// lock. False where `end` came first.
    private func invalidate(_ nodes: [Node], until end: Duration) -> Bool {
        guard let kernel, !nodes.isEmpty else { return true }
        let isDone = CompletionFlag()
        SystemThread.startDetached("ward-evict") {
            for node in nodes {
                if isDone.isCancelled.load(ordering: .relaxed) { break }
                kernel.invalidateContent(of: node.id)
            }
            isDone.isSet.store(true, ordering: .releasing)
        }
        while !isDone.isSet.load(ordering: .acquiring) {
            if SystemClock.monotonic() >= end {
                isDone.isCancelled.store(true, ordering: .relaxed)
                return false
            }
            usleep(100)
        }
        return true
    }

    private final class CompletionFlag: Sendable {
        let isSet = Atomic<Bool>(false)
        let isCancelled = Atomic<Bool>(false)
    }
}
