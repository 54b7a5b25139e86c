import WardCrypto
import WardFormat
import WardSystem

/// The pages of the file being served that differ from the format and are excused by an unclean
/// end.
struct Excuses {
    private var pages: [Int] = []
    private weak var file: OpenFile?

    /// Notes that a page's difference from the format is excused, while the caller holds the file's
    /// lock.
    mutating func note(_ page: Int, of file: OpenFile) {
        if self.file !== file { forget() }
        self.file = file
        pages.append(page)
    }

    func contain(_ page: Int, of file: OpenFile) -> Bool {
        self.file === file && pages.contains(page)
    }

    mutating func forget() {
        pages = []
        file = nil
    }
}

/// The key under which a page is sealed.
enum PageKeyUse: Equatable {
    /// The file key: format 1, and pages that a volume brought from there.
    case fileKey
    /// The key of an epoch (`PageKey`).
    case epoch(UInt32)

    @inline(__always)
    init(_ prefix: RecordPrefix) { self = prefix.hasEpochKey ? .epoch(prefix.epoch) : .fileKey }
}

/// The cipher context of the file and the epoch that a thread served last.
struct CipherCache: ~Copyable {
    private var cipher: AEADContext?
    /// The serial of its key; 0: none.
    private var serial: UInt64 = 0
    private var use = PageKeyUse.fileKey

    var isEmpty: Bool { serial == 0 }

    /// Runs `body` with the cipher of a key. `load` brings the key where it is not in memory.
    @inline(__always)
    mutating func with<R>(
        _ key: FileKey, _ use: PageKeyUse, load: () throws(Errno) -> SecretBytes,
        _ body: (borrowing AEADContext) throws(Errno) -> R
    ) throws(Errno) -> R {
        let wanted = key.serial
        if wanted == 0 || serial != wanted || self.use != use {
            try make(of: key, use, load: load)
        }
        return try body(cipher!)
    }

    private mutating func make(
        of key: FileKey, _ use: PageKeyUse, load: () throws(Errno) -> SecretBytes
    ) throws(Errno) {
        wipe()
        try key.withKey(load: load) { bytes throws(Errno) in
            do throws(CryptoError) {
                cipher =
                    switch use {
                    case .fileKey: try AEADContext(.aes256GCM, key: bytes)
                    case .epoch(let epoch):
                        try AEADContext(
                            .aes256GCM, key: PageKey.derive(from: bytes, epoch: epoch))
                    }
            } catch {
                throw .noMemory
            }
            serial = key.serial
            self.use = use
        }
    }

    mutating func wipe() {
        cipher = nil
        serial = 0
    }
}

/// Random bytes for nonces, handed out twelve at a time: getrandom(2) costs as much as sealing a
/// page.
struct NoncePool: ~Copyable {
    private static let poolBytes = 3072
    private let bytes = UnsafeMutableRawPointer.allocate(
        byteCount: NoncePool.poolBytes, alignment: 16)
    private var left = 0

    deinit { bytes.deallocate() }

    /// Twelve random bytes.
    @inline(__always)
    mutating func next() -> (UInt64, UInt32) {
        if left < 12 { fill() }
        left -= 12
        let at = bytes + left
        return (
            at.loadUnaligned(as: UInt64.self), at.loadUnaligned(fromByteOffset: 8, as: UInt32.self)
        )
    }

    private mutating func fill() {
        SystemRandom.fill(
            UnsafeMutableRawBufferPointer(start: bytes, count: NoncePool.poolBytes))
        left = NoncePool.poolBytes
    }
}
