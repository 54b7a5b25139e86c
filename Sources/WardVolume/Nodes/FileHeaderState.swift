import Glibc
import WardFormat

/// A header as it is stored.
struct StoredHeader {
    var header: FileHeader
    /// The header's 256 bytes.
    var bytes: [UInt8]
    /// The header's format. Format 1 in a volume of format 2: an upgrade has not carried the file
    /// over yet, and it belongs in every directory.
    var format: VolumeFormat
    /// The capsule that the header names. Nil where it names none, or its file can't be read.
    var capsule: Capsule?
}

/// The header of an open file, and the page 0 that may be on the disk instead of it.
///
/// A value with a transition for each event. The file's lock guards it.
struct FileHeaderState {
    /// The ID of the directory for a new header. The file was opened there, or moved there since.
    private(set) var directoryID: [UInt8]
    /// The header as stored; nil where the file has none yet.
    private(set) var stored: StoredHeader?
    /// Other headers with the same key that page 0 may have on the disk. They were replaced without
    /// a sync since, or are about to be written.
    private var earlier: [[UInt8]] = []
    /// The first bytes of page 0's record when the file was opened, with a nonce that no other
    /// record has. Zero once the file has a new key.
    private var openedRecord = SIMD4<UInt64>()
    static let mostEarlierHeaders = 16

    init(directoryID: [UInt8], _ stored: StoredHeader? = nil) {
        self.directoryID = directoryID
        self.stored = stored
    }

    /// The header where it binds the file to directories; nil for one of format 1.
    var bound: FileHeader? {
        stored.flatMap { $0.format >= .version2 ? $0.header : nil }
    }

    /// The file has a name in this directory now.
    mutating func moved(to directoryID: [UInt8]) { self.directoryID = directoryID }

    /// Whether the header of a page 0 that was read is one that this file wrote with its present
    /// key.
    func isOwnHeader(_ page: UnsafeRawPointer) -> Bool {
        func begins(_ header: [UInt8]) -> Bool {
            !header.isEmpty && memcmp(page, header, FileHeader.bytes) == 0
        }
        return stored.map { begins($0.bytes) } == true || earlier.contains(where: begins)
    }

    /// Whether the file's key opens the record of a page 0 that was read. A failed sync may have
    /// brought back an older page with another key. Uses no key.
    func isOwnRecord(_ page: UnsafeRawPointer) -> Bool {
        isOwnHeader(page)
            || openedRecord != SIMD4()
                && openedRecord == FileHeaderState.beginning(ofRecordIn: page)
    }

    /// The file was opened with a page 0 that has a key.
    mutating func opened(with page: UnsafeRawPointer) {
        openedRecord = FileHeaderState.beginning(ofRecordIn: page)
    }

    private static func beginning(ofRecordIn page: UnsafeRawPointer) -> SIMD4<UInt64> {
        (page + FileHeader.bytes).loadUnaligned(as: SIMD4<UInt64>.self)
    }

    /// Page 0 is about to get this header, or a failed call puts it back; nil: the file has no page
    /// 0 any more.
    mutating func put(_ header: StoredHeader?) { stored = header.map(keepingCapsule) }

    /// The capsule stays with the file as long as its headers name it.
    private func keepingCapsule(_ new: StoredHeader) -> StoredHeader {
        guard new.capsule == nil, let stored, stored.header.capsuleID == new.header.capsuleID
        else { return new }
        var new = new
        new.capsule = stored.capsule
        return new
    }

    /// Page 0 gets a new key: no earlier page has it.
    mutating func keyChanged() {
        synced()
        openedRecord = SIMD4()
    }

    /// Page 0 is about to get another header with the same key.
    mutating func willReplace(with bytes: [UInt8]) {
        if earlier.count >= FileHeaderState.mostEarlierHeaders { earlier.removeFirst() }
        earlier.append(bytes)
    }

    /// Page 0 has another header with the same key.
    mutating func replaced(with new: StoredHeader) {
        willReplace(with: stored?.bytes ?? [])
        stored = keepingCapsule(new)
    }

    /// A sync succeeded: the disk has the present header.
    mutating func synced() { if !earlier.isEmpty { earlier = [] } }
}
