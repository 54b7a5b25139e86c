import Foundation
import Synchronization
import WardSystem

@testable import WardVolume

/// A kernel with dirty mapped pages: an invalidation writes them back, in pages of 4,096 bytes,
/// before it returns.
final class FakeKernel: KernelNotifier, @unchecked Sendable {
    // Sendable: all mutable state is behind `lock`.
    struct DirtyPage {
        var handle: HandleID
        var offset: Int
        var bytes: [UInt8]
    }

    private let volume: Volume
    private let caller: Caller
    private let lock = NSLock()
    private var dirty: [NodeID: [DirtyPage]] = [:]
    private var failed: [Errno] = []
    private var invalidated: [NodeID] = []
    private var names: [String] = []
    private var isLate = false
    private var late: [DirtyPage] = []

    init(_ harness: VolumeHarness) {
        volume = harness.volume
        caller = harness.caller
        harness.volume.setNotifier(self)
    }

    /// A program's store into its mapping: pages of the file that the volume has not seen.
    func store(_ node: NodeID, _ handle: HandleID, _ offset: Int, _ bytes: [UInt8]) {
        lock.withLock {
            var at = 0
            while at < bytes.count {
                let end = min(bytes.count, at + 4096)
                dirty[node, default: []].append(
                    DirtyPage(handle: handle, offset: offset + at, bytes: Array(bytes[at..<end])))
                at = end
            }
        }
    }

    /// The errors that the volume answered to write-backs.
    var failures: [Errno] { lock.withLock { failed } }
    /// The names that the kernel was told to forget.
    var forgottenNames: [String] { lock.withLock { names } }
    var invalidations: Int { lock.withLock { invalidated.count } }

    /// From now on an invalidation returns before its pages are written back, as in kernels before
    /// 6.16.
    func sendsLate() { lock.withLock { isLate = true } }

    func awaitWriteBacks(until end: Duration) {
        send(
            lock.withLock {
                defer { late = [] }
                return late
            })
    }

    func invalidateContent(of node: NodeID) {
        let pages = lock.withLock {
            invalidated.append(node)
            let pages = dirty.removeValue(forKey: node) ?? []
            guard isLate else { return pages }
            late += pages
            return []
        }
        send(pages)
    }

    private func send(_ pages: [DirtyPage]) {
        guard !pages.isEmpty else { return }
        let context = WorkerContext(volume: volume)
        for page in pages {
            do throws(Errno) {
                try write(page, context)
            } catch {
                lock.withLock { failed.append(error) }
            }
            context.finishRequest()
        }
    }

    private func write(_ page: DirtyPage, _ context: WorkerContext) throws(Errno) {
        do {
            try page.bytes.withUnsafeBytes {
                try volume.write(
                    page.handle, offsetBytes: UInt64(page.offset), $0, flags: .fromPageCache,
                    caller: caller, context)
            }
        } catch { throw error as! Errno }
    }

    func invalidateAttributes(of node: NodeID) {}
    func invalidateName(_ name: [UInt8], in parent: NodeID) {
        lock.withLock { names.append(String(decoding: name, as: UTF8.self)) }
    }
}
