import CWardLinux
import Glibc
import Synchronization
import WardCrypto
import WardFormat
import WardSystem

/// The tools of one thread for serving requests: page buffers, the cipher context of its last file,
/// and its content lock. Only that thread uses them; the lock thread wipes them.
public final class WorkerContext: @unchecked Sendable {
    // Sendable: everything belongs to the owning thread, but the lock thread wipes `cipher` and the
    // plaintext buffer. Both threads hold `contentLock` then.

    /// Largest read or write served at once, bytes (FUSE `max_write`).
    public static let maximumTransferBytes = 1 << 20
    /// Pages of 512 bytes for 1 MiB of payload, one more at either end, and room to spare.
    static let bufferBytes = 5 << 18

    let volume: Volume
    /// Ciphertext of a request's pages.
    let sealed: UnsafeMutableRawPointer
    /// Plaintext of a request's pages; wiped at a lock, and before the thread sleeps.
    let plain: UnsafeMutableRawPointer
    /// How many bytes of `plain` may hold plaintext.
    private var plainHighWater = 0
    /// Two encrypted names, zero-terminated.
    let nameA: UnsafeMutablePointer<CChar>
    let nameB: UnsafeMutablePointer<CChar>

    /// Held while keys or plaintext are touched.
    private let contentLock = ContentLock()
    private var holdsContentLock = false
    /// Runs when the content lock is released. Owning thread only.
    private var afterContent: [() -> Void] = []
    var excuses = Excuses()
    private var cipher = CipherCache()
    /// The epoch of the write under way, 0 for none; a durable point waits for it.
    let epochInUse = Atomic<UInt32>(0)
    /// Odd while the request under way gives a file a class that a mark would forbid
    /// (`Volume+Synchronised.swift`).
    let classDecisions = Atomic<UInt64>(0)
    private var nonces = NoncePool()

    /// Throws `ENOMEM`.
    public init(allocatingFor volume: Volume) throws(Errno) {
        sealed = try TransferMemory.map(2 * WorkerContext.bufferBytes)
        plain = sealed + WorkerContext.bufferBytes
        self.volume = volume
        nameA = .allocate(capacity: 512)
        nameB = .allocate(capacity: 512)
        volume.gate.contexts.register(self)
    }

    /// Ends the process where there is no memory: its callers can't go on without.
    package convenience init(volume: Volume) {
        do throws(Errno) {
            try self.init(allocatingFor: volume)
        } catch {
            preconditionFailure("no memory for a request buffer")
        }
    }

    deinit {
        volume.gate.contexts.unregister(self)
        explicit_bzero(plain, plainHighWater)
        TransferMemory.unmap(sealed, 2 * WorkerContext.bufferBytes)
        nameA.deallocate()
        nameB.deallocate()
    }

    // MARK: The gate

    /// Takes the content lock until `unlockContent`. Only an access that outlives its scope needs
    /// that (`Volume.read`); all others come from `withContent`.
    @inline(__always)
    func lockContent() -> ContentAccess {
        if !holdsContentLock {
            contentLock.takeUntilGivenBack()
            holdsContentLock = true
        }
        return ContentAccess(self)
    }

    /// Runs `body` with the content lock held.
    @inline(__always)
    func withContent<R, E: Error>(
        _ body: (borrowing ContentAccess) throws(E) -> R
    ) throws(E) -> R {
        let access = lockContent()
        defer { unlockContent() }
        return try body(access)
    }

    @inline(__always)
    func unlockContent() {
        if holdsContentLock {
            holdsContentLock = false
            contentLock.giveBack()
            if !afterContent.isEmpty { runAfterContent() }
        }
    }

    /// Runs `body` once the content lock is released. Work that may wait for the backing store,
    /// such as reading a file's path, must not hold up a lock.
    func afterContent(_ body: @escaping () -> Void) {
        guard holdsContentLock else { return body() }
        afterContent.append(body)
    }

    private func runAfterContent() {
        let bodies = afterContent
        afterContent = []
        for body in bodies { body() }
    }

    /// Ends the use of the content that `Volume.read` returned, so that a lock may go on. Called
    /// after the reply was sent.
    @inline(__always)
    public func finishRequest() { unlockContent() }

    /// Waits until no request of this thread that saw an earlier state of the gate is under way.
    /// With `wiping`, wipes its cipher context and plaintext. False where `patience` ran out.
    @discardableResult
    func drain(wiping: Bool, patience: Duration) -> Bool {
        let end = SystemClock.monotonic() + patience
        while !contentLock.tryTake() {
            if SystemClock.monotonic() >= end { return false }
            usleep(50)
        }
        if wiping { wipeHoldingLock() }
        contentLock.giveBack()
        return true
    }

    /// Whether a cipher or plaintext may be here. For tests, while no request is under way.
    var holdsSecrets: Bool { !cipher.isEmpty || plainHighWater > 0 }

    private func wipeHoldingLock() {
        cipher.wipe()
        wipePlaintext()
    }

    private func wipePlaintext() {
        explicit_bzero(plain, plainHighWater)
        plainHighWater = 0
    }

    /// Wipes content of earlier requests from the buffer, the stack and the registers of the owning
    /// thread. Called before the thread sleeps: its memory may then be swapped out. The cipher
    /// stays.
    public func scrub() {
        withContent { _ in wipePlaintext() }
        ward_scrub_thread()
    }

    // MARK: Buffers and keys

    /// Notes that the first `count` bytes of `plain` are about to hold plaintext.
    @inline(__always)
    fileprivate func usePlain(_ count: Int) {
        if count > plainHighWater { plainHighWater = count }
    }

    @inline(__always)
    fileprivate func withCipher<R>(
        of file: OpenFile, _ use: PageKeyUse, load: () throws(Errno) -> SecretBytes,
        _ body: (borrowing AEADContext) throws(Errno) -> R
    ) throws(Errno) -> R {
        try cipher.with(file.key, use, load: load, body)
    }

    /// Twelve random bytes.
    @inline(__always)
    func freshNonce() -> (UInt64, UInt32) { nonces.next() }
}

/// The access of one thread to keys and plaintext, while it holds its content lock. Functions that
/// need it take it.
struct ContentAccess: ~Copyable {
    /// Unowned: its thread holds the context.
    unowned(unsafe) let context: WorkerContext

    fileprivate init(_ context: WorkerContext) { self.context = context }

    /// Notes that the first `count` bytes of the context's `plain` are about to hold plaintext.
    @inline(__always)
    func usePlain(_ count: Int) { context.usePlain(count) }

    /// Runs `body` with the cipher of a file. The expanded key is kept for the next request of the
    /// same file and epoch. `load` brings the file key where it is not in memory.
    @inline(__always)
    func withCipher<R>(
        of file: OpenFile, _ use: PageKeyUse, load: () throws(Errno) -> SecretBytes,
        _ body: (borrowing AEADContext) throws(Errno) -> R
    ) throws(Errno) -> R {
        try context.withCipher(of: file, use, load: load, body)
    }
}
