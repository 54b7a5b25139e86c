/// Where an open file ends: its size, the state of its last page, and what lies behind that page in
/// the backing file.
///
/// A value with a transition for each event. The file's lock guards it.
struct FileExtent: Equatable {
    /// The content of the backing file behind the last page.
    enum Tail: Equatable {
        /// Nothing: the backing file ends with the last page.
        case none
        /// The size hint, or bytes that a failed call or a power cut left behind. They are cut off
        /// before the size changes.
        case remains
        /// Pages from before a cut. By themselves they look like an interrupted growth.
        /// `needsSync`: the file's present last page may not be durable. Then no page is cut off
        /// before a sync succeeds.
        case pages(needsSync: Bool)
    }

    /// Logical size, bytes.
    private(set) var sizeBytes = 0
    private(set) var tail = Tail.none
    /// The last page was authenticated since the file was opened, or this mount made the file.
    private(set) var isEndVerified = false
    /// The last page differs from the format (after a power cut, accepted): the next write starts
    /// with it.
    private(set) var needsMending = false
    /// The size hint is missing or wrong.
    private(set) var needsHint = false
    /// The hint was already put back once for a `stat`; the next time is at the last close.
    private(set) var hintWasShown = false
    /// The end of the file is durable, and so is the header's flag that the file is sparse. A hole
    /// punched now is never taken for a wiped page.
    private(set) var isReadyForHoles = false

    /// Pages from before a cut are still behind the last page.
    var hasUncutPages: Bool { if case .pages = tail { true } else { false } }
    /// A sync has to come before the tail is cut off.
    var needsSyncBeforeCut: Bool { tail == .pages(needsSync: true) }

    // MARK: Beginning

    /// A file that this mount makes.
    static let made = FileExtent(isEndVerified: true)

    /// A file that is opened. No page was authenticated yet.
    static func opened(sizeBytes: Int, hasTail: Bool, needsHint: Bool) -> FileExtent {
        FileExtent(sizeBytes: sizeBytes, tail: hasTail ? .remains : .none, needsHint: needsHint)
    }

    /// A file that a check salvages: nothing is known of its end.
    static let salvaged = FileExtent(tail: .remains, isEndVerified: true, needsHint: true)

    /// A check found the size of a file that it salvages.
    mutating func salvaged(sizeBytes: Int) { self.sizeBytes = sizeBytes }

    // MARK: The last page

    /// The last page was authenticated, or is known to be damaged.
    mutating func endVerified() { isEndVerified = true }

    /// The last page lacks its mark, or a failed call may have changed it.
    mutating func endTorn() { needsMending = true }

    /// A last page was written, and the file ends there. Another size: nothing was behind that page
    /// before the write.
    mutating func endWritten(sizeBytes: Int) {
        if sizeBytes != self.sizeBytes {
            tail = .none
            resized()
        }
        self.sizeBytes = sizeBytes
        isEndVerified = true
        needsMending = false
    }

    /// The file lost all content. Its tail stays as it is.
    mutating func emptied() {
        sizeBytes = 0
        needsMending = false
        resized()
    }

    /// The last page of an earlier size was written again. The later pages are not cut off yet.
    mutating func endPutBack(sizeBytes: Int) {
        self.sizeBytes = sizeBytes
        tail = .remains
        resized()
    }

    /// A write failed. The backing file may have another size than before.
    mutating func writeFailed() { resized() }

    private mutating func resized() {
        isReadyForHoles = false
        needsHint = true
    }

    // MARK: The tail

    /// The pages behind a new end are about to be cut off.
    mutating func shrunk() { tail = .pages(needsSync: true) }

    /// The last page is durable.
    mutating func endSynced() { if hasUncutPages { tail = .pages(needsSync: false) } }

    /// Pages are about to be cut off behind a last page that may have changed since the cut failed.
    mutating func cutIsDue() { if hasUncutPages { tail = .pages(needsSync: true) } }

    /// The backing file was cut behind the last page.
    mutating func cut() { tail = .none }

    /// A cut failed, or nothing is known of the backing file's end.
    mutating func cutFailed() { if tail == .none { tail = .remains } }

    /// A page without content became the first and only one. Nothing behind it could be cut off.
    /// `needsSync`: the page could not be made durable.
    mutating func cutFailedBehindHeader(needsSync: Bool) { tail = .pages(needsSync: needsSync) }

    // MARK: The size hint

    /// The tail was cut off, and the hint with it.
    mutating func hintRemoved() {
        tail = .none
        needsHint = true
    }

    /// The hint is about to be put back. That is tried once.
    mutating func hintTried() { needsHint = false }

    /// The hint is behind the last page. An empty file has none.
    mutating func hintPut() {
        needsHint = false
        tail = sizeBytes > 0 ? .remains : .none
    }

    /// The hint could not be put back.
    mutating func hintFailed() {
        needsHint = false
        cutFailed()
    }

    /// The hint was put back for a `stat`.
    mutating func hintShown() { hintWasShown = true }

    // MARK: Holes

    /// The sparse header and the last page are durable.
    mutating func preparedForHoles() { isReadyForHoles = true }

    /// The header is about to say that the file is sparse.
    mutating func becomesSparse() { isReadyForHoles = false }
}

/// The part of a `FileExtent` that threads read without the file's lock.
struct PublishedExtent: ~Copyable, Sendable {
    private struct Flags: OptionSet, AtomicWord {
        let rawValue: UInt64
        static let isEndVerified = Flags(rawValue: 1)
        static let needsHint = Flags(rawValue: 2)
        static let hintWasShown = Flags(rawValue: 4)
        static let hasUncutPages = Flags(rawValue: 8)

        init(rawValue: UInt64) { self.rawValue = rawValue }
        init(word: UInt64) { rawValue = word }
        var word: UInt64 { rawValue }
    }

    private let size = AtomicValue(0)
    private let flags = AtomicValue(Flags())

    var sizeBytes: Int { @inline(__always) get { size.value } }
    /// An open reads this before it takes the lock.
    var isEndVerified: Bool { flags.value.contains(.isEndVerified) }
    /// A `stat` reads these two before it takes the lock.
    var needsHint: Bool { flags.value.contains(.needsHint) }
    var hintWasShown: Bool { flags.value.contains(.hintWasShown) }
    /// A sync reads this before it takes the lock.
    var hasUncutPages: Bool { flags.value.contains(.hasUncutPages) }

    func publish(_ extent: FileExtent) {
        var new = Flags()
        if extent.isEndVerified { new.insert(.isEndVerified) }
        if extent.needsHint { new.insert(.needsHint) }
        if extent.hintWasShown { new.insert(.hintWasShown) }
        if extent.hasUncutPages { new.insert(.hasUncutPages) }
        flags.value = new
        size.value = extent.sizeBytes
    }
}
