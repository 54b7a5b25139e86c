import Glibc
import Synchronization
import WardSystem

/// Ciphertext of mapped pages that was accepted while its class was closing and is not in the
/// backing store yet.
///
/// Storing needs no key, so a lock does not wait for it (decision 0012). Only the latest version of
/// each page is kept. One thread takes runs of pages out and stores them: versions of a page reach
/// the backing store in order.
///
/// Concurrency: any thread; the mutex guards everything, and is never held across a call to the
/// backing store. Pages of a file are added with the file's lock held for writing. While a thread
/// holds that lock, the file's pages here can only become fewer.
final class PendingStores: Sendable {
    /// Above this a write-back waits for room, until the lock's deadline.
    static let maximumBytes = 256 << 20
    /// Largest run that one call stores, bytes.
    static let runBytes = 1 << 20

    fileprivate struct Page {
        let bytes: UnsafeMutableRawPointer
        let epoch: UInt32
    }

    fileprivate struct Pages: @unchecked Sendable {
        // Sendable: the page buffers belong to this value alone, behind the mutex.
        let file: OpenFile
        let node: Node
        /// Latest versions, without the run that is being stored.
        var waiting: [Int: Page] = [:]
        /// Pages in the order of their first version. Some may have left `waiting` with an earlier
        /// run.
        var order: [Int] = []
        var taken = 0
        /// The run that is being stored.
        var storing: [Int: Page] = [:]
    }

    private struct State {
        var files: [ObjectIdentifier: Pages] = [:]
        var queue: [ObjectIdentifier] = []
        var bytes = 0
        var pagesByEpoch: [UInt32: Int] = [:]
        var isStoring = false
        var isRefusing = false
    }

    /// Consecutive pages, copied out for one call.
    struct Run {
        let file: OpenFile
        let node: Node
        let firstPage: Int
        let pageCount: Int
    }

    /// Stores the pages.
    let queue = SerialQueue("ward-store")
    private let state = Mutex(State())
    /// Signalled when a run is stored, and when `refuse` changes.
    private let changes = FutexWord()
    private let pageBytes: Int
    private let maximumBytes: Int

    init(pageBytes: Int, maximumBytes: Int = PendingStores.maximumBytes) {
        self.pageBytes = pageBytes
        self.maximumBytes = maximumBytes
    }

    /// Bytes that are accepted and not stored.
    var bytes: Int { state.withLock { $0.bytes } }

    /// Whether write-backs that find no room fail instead of waiting. A lock that is over does not
    /// need them any more.
    func refuse(_ refusing: Bool) {
        state.withLock { $0.isRefusing = refusing }
        changes.signalAll()
    }

    // MARK: Coming

    /// The result of `add`.
    struct Added {
        /// The file had no pages here before: the caller holds the file until `finish` says that it
        /// has none any more.
        var isFirst = false
        /// No thread is storing: the caller starts one.
        var needsStorer = false
    }

    /// Takes copies of whole sealed pages. The file's lock is held for writing. Waits for room;
    /// throws `ETIMEDOUT` while `refuse(true)` holds.
    func add(
        _ file: OpenFile, firstPage: Int, count: Int, _ sealed: UnsafeRawPointer, epoch: UInt32
    ) throws(Errno) -> Added {
        var added: Added?
        changes.wait {
            state.withLock { state in
                // A run that is larger than the maximum must not wait for ever.
                if state.bytes > 0, state.bytes + count * pageBytes > maximumBytes {
                    return state.isRefusing
                }
                added = take(file, firstPage, count, sealed, epoch, &state)
                return true
            }
        }
        guard let added else { throw Errno(rawValue: ETIMEDOUT) }
        return added
    }

    private func take(
        _ file: OpenFile, _ firstPage: Int, _ count: Int, _ sealed: UnsafeRawPointer,
        _ epoch: UInt32, _ state: inout State
    ) -> Added {
        let id = ObjectIdentifier(file)
        var added = Added()
        if state.files[id] == nil {
            added.isFirst = true
            state.files[id] = Pages(file: file, node: file.node)
        }
        if state.files[id]!.waiting.isEmpty { state.queue.append(id) }
        for index in 0..<count {
            let page = firstPage + index
            if let old = state.files[id]!.waiting[page] {
                forget(old, &state)
            } else {
                state.files[id]!.order.append(page)
            }
            let copy = UnsafeMutableRawPointer.allocate(byteCount: pageBytes, alignment: 64)
            copy.copyMemory(from: sealed + index * pageBytes, byteCount: pageBytes)
            state.files[id]!.waiting[page] = Page(bytes: copy, epoch: epoch)
            state.bytes += pageBytes
            state.pagesByEpoch[epoch, default: 0] += 1
        }
        updateCount(id, &state)
        if !state.isStoring {
            state.isStoring = true
            added.needsStorer = true
        }
        return added
    }

    private func forget(_ page: Page, _ state: inout State) {
        page.bytes.deallocate()
        state.bytes -= pageBytes
        state.pagesByEpoch[page.epoch]! -= 1
        if state.pagesByEpoch[page.epoch] == 0 { state.pagesByEpoch[page.epoch] = nil }
    }

    private func updateCount(_ id: ObjectIdentifier, _ state: inout State) {
        let pages = state.files[id]!
        pages.file.pendingPages.count.store(
            pages.waiting.count + pages.storing.count, ordering: .releasing)
    }

    // MARK: Seen by readers

    /// Returns the latest versions of a file's pages that are not stored yet. The file's lock is
    /// held: versions that are stored meanwhile are the same.
    func latest(of file: OpenFile, _ pages: Range<Int>) -> [(page: Int, bytes: [UInt8])] {
        state.withLock { state in
            guard let known = state.files[ObjectIdentifier(file)] else { return [] }
            return pages.compactMap { page in
                guard let found = known.waiting[page] ?? known.storing[page] else { return nil }
                return (
                    page, [UInt8](UnsafeRawBufferPointer(start: found.bytes, count: pageBytes))
                )
            }
        }
    }

    // MARK: Going

    /// Copies the next run to `buffer`. Nil where no run is left: the storing thread then ends.
    func nextRun(to buffer: UnsafeMutableRawPointer) -> Run? {
        state.withLock { state in
            while let id = state.queue.first {
                while let page = state.files[id]?.nextPage() {
                    guard state.files[id]!.waiting[page] != nil else { continue }
                    return run(of: id, from: page, to: buffer, &state)
                }
                state.queue.removeFirst()
            }
            state.isStoring = false
            return nil
        }
    }

    private func run(
        of id: ObjectIdentifier, from first: Int, to buffer: UnsafeMutableRawPointer,
        _ state: inout State
    ) -> Run {
        var page = first
        while (page - first + 1) * pageBytes <= PendingStores.runBytes,
            let found = state.files[id]!.waiting.removeValue(forKey: page)
        {
            (buffer + (page - first) * pageBytes).copyMemory(
                from: found.bytes, byteCount: pageBytes)
            state.files[id]!.storing[page] = found
            page += 1
        }
        let pages = state.files[id]!
        if pages.waiting.isEmpty {
            state.files[id]!.order = []
            state.files[id]!.taken = 0
            state.queue.removeFirst()
        }
        return Run(
            file: pages.file, node: pages.node, firstPage: first, pageCount: page - first)
    }

    /// Notes that the run is stored, or lost. True where the file has no pages here any more.
    func finish(_ run: Run) -> Bool {
        defer { changes.signalAll() }
        return state.withLock { state in
            let id = ObjectIdentifier(run.file)
            guard let pages = state.files[id] else { return false }
            for page in pages.storing.values { forget(page, &state) }
            state.files[id]!.storing = [:]
            updateCount(id, &state)
            guard state.files[id]!.waiting.isEmpty else { return false }
            state.files[id] = nil
            return true
        }
    }

    // MARK: Waiting

    /// Whether pages of epochs before `epoch` are still to be stored: a durable point does not
    /// cover them yet.
    func holdsPages(before epoch: UInt32) -> Bool {
        state.withLock { state in state.pagesByEpoch.keys.contains { $0 < epoch } }
    }

    /// Waits until everything is stored; false where `end` (monotonic) came first.
    func wait(until end: Duration) -> Bool {
        changes.wait(deadline: end) { bytes == 0 }
    }

    /// Waits until `isStored` holds. Calls `retry` at times: no event tells when a storing thread
    /// that could not be started can be.
    func wait(retry: () -> Void, until isStored: () -> Bool) {
        changes.wait(lookingEvery: .milliseconds(10)) {
            if isStored() { return true }
            retry()
            return false
        }
    }

    /// The nodes of files with pages here.
    var nodes: [Node] { state.withLock { $0.files.values.map(\.node) } }
}

extension PendingStores.Pages {
    fileprivate mutating func nextPage() -> Int? {
        guard taken < order.count else { return nil }
        defer { taken += 1 }
        return order[taken]
    }
}
