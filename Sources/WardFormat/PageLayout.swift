/// The places of a file's bytes: whole pages of `pageBytes`, each sealed by itself.
///
/// ```
/// page 0                                   page 1, 2, …
/// ┌────────────────┬──────────────────┐   ┌──────────────────────────────────┐
/// │ file header 256│ record           │   │ record                           │
/// └────────────────┴──────────────────┘   └──────────────────────────────────┘
/// record: nonce 12 ‖ epoch 4 ‖ length 2 ‖ flags 2 ‖ ciphertext ‖ tag 16
/// ```
/// Integers are little-endian. The ciphertext always fills the page; `length` says how much of it
/// counts. Associated data: page number 8 ‖ epoch 4 ‖ length 2 ‖ flags 2.
public struct PageLayout: Equatable, Sendable {
    public static let headerBytes = 256
    public static let nonceBytes = 12
    /// The size of nonce, epoch, length and flags.
    public static let recordPrefixBytes = 20
    public static let tagBytes = 16
    /// The bytes of a record that are not payload.
    public static let recordOverheadBytes = recordPrefixBytes + tagBytes
    /// Set on a page that was the file's last page when it was written.
    public static let finalFlag: UInt16 = 1
    /// Set on a page that was sealed under the key of its epoch (`PageKey`): format 2.
    public static let epochKeyFlag: UInt16 = 2

    /// The size of a page on disk: 512 or 4096 bytes.
    public let pageBytes: Int
    /// Payload bytes of page 0.
    public let firstCapacity: Int
    /// Payload bytes of every other page.
    public let capacity: Int

    public init(pageBytes: Int) {
        precondition(pageBytes == 512 || pageBytes == 4096, "pages have 512 or 4,096 bytes")
        self.pageBytes = pageBytes
        firstCapacity = pageBytes - PageLayout.headerBytes - PageLayout.recordOverheadBytes
        capacity = pageBytes - PageLayout.recordOverheadBytes
    }

    /// Payload bytes of page `page`.
    @inline(__always)
    public func capacity(ofPage page: Int) -> Int { page == 0 ? firstCapacity : capacity }

    /// The offset of a page's record in its page.
    @inline(__always)
    public func recordOffset(ofPage page: Int) -> Int { page == 0 ? PageLayout.headerBytes : 0 }

    /// The page that holds the byte at `offsetBytes`.
    @inline(__always)
    public func page(at offsetBytes: Int) -> Int {
        offsetBytes < firstCapacity ? 0 : 1 + (offsetBytes - firstCapacity) / capacity
    }

    /// The offset of the first byte of a page.
    @inline(__always)
    public func start(ofPage page: Int) -> Int {
        page == 0 ? 0 : firstCapacity + (page - 1) * capacity
    }

    /// The number of pages of a file of `sizeBytes`; 0 for an empty one.
    @inline(__always)
    public func pageCount(forSize sizeBytes: Int) -> Int {
        sizeBytes == 0 ? 0 : page(at: sizeBytes - 1) + 1
    }

    /// The largest size of a file, far beyond that of every backing file system. The backing file
    /// is up to a twelfth larger, and arithmetic on its size must not overflow.
    public static let maximumSizeBytes = 1 << 62

    /// The size of a backing file with its size hint: whole pages, then a hole as long as the last
    /// page's payload. A remainder of 0 means no hint.
    public func backingSize(forSize sizeBytes: Int) -> Int {
        let pages = pageCount(forSize: sizeBytes)
        guard pages > 0 else { return 0 }
        return pages * pageBytes + (sizeBytes - start(ofPage: pages - 1))
    }

    /// The file's size by the size hint of its backing file; nil where there is no hint.
    public func size(fromBackingSize backingBytes: Int) -> Int? {
        if backingBytes == 0 { return 0 }
        let pages = backingBytes / pageBytes
        let lastLength = backingBytes % pageBytes
        guard pages > 0, lastLength > 0, lastLength <= capacity(ofPage: pages - 1) else {
            return nil
        }
        return start(ofPage: pages - 1) + lastLength
    }
}

/// The fields of a record that are in clear, without the nonce.
public struct RecordPrefix: Equatable, Sendable {
    public var epoch: UInt32
    /// The payload bytes that count.
    public var length: UInt16
    public var flags: UInt16

    /// Whether the page was the file's last when it was written.
    @inline(__always)
    public var isFinal: Bool { flags & PageLayout.finalFlag != 0 }

    /// Whether the page was sealed under the key of its epoch; else under the file key.
    @inline(__always)
    public var hasEpochKey: Bool { flags & PageLayout.epochKeyFlag != 0 }

    /// Whether pages of a volume of this format may have all flags that are set.
    @inline(__always)
    public func hasKnownFlags(_ format: VolumeFormat) -> Bool {
        let known =
            format == .version1
            ? PageLayout.finalFlag : PageLayout.finalFlag | PageLayout.epochKeyFlag
        return flags & ~known == 0
    }

    /// Reads epoch, length and flags of the record at `record`.
    @inline(__always)
    public init(reading record: UnsafeRawPointer) {
        epoch = UInt32(
            littleEndian: record.loadUnaligned(fromByteOffset: 12, as: UInt32.self))
        length = UInt16(
            littleEndian: record.loadUnaligned(fromByteOffset: 16, as: UInt16.self))
        flags = UInt16(
            littleEndian: record.loadUnaligned(fromByteOffset: 18, as: UInt16.self))
    }

    /// The prefix of a page that a volume of this format writes.
    public init(epoch: UInt32, length: Int, isFinal: Bool, format: VolumeFormat) {
        self.epoch = epoch
        self.length = UInt16(length)
        flags =
            (isFinal ? PageLayout.finalFlag : 0)
            | (format == .version1 ? 0 : PageLayout.epochKeyFlag)
    }

    /// Writes epoch, length and flags into the record at `record`.
    @inline(__always)
    public func write(to record: UnsafeMutableRawPointer) {
        record.storeBytes(of: epoch.littleEndian, toByteOffset: 12, as: UInt32.self)
        record.storeBytes(of: length.littleEndian, toByteOffset: 16, as: UInt16.self)
        record.storeBytes(of: flags.littleEndian, toByteOffset: 18, as: UInt16.self)
    }
}
