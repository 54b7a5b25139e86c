import CWardLinux
import Glibc
import WardFormat
import WardSystem

// Walks over backing files. Before its last page authenticates, the length of a backing file is not
// trustworthy. An attacker with write access can make a short file as long as the backing store
// allows. So every walk visits only pages with data (`SEEK_DATA` of lseek(2)) and gives up after
// `zeroPagesSearched` pages of zeros.
extension Volume {
    /// How many pages of zeros a search reads before it gives up.
    static let zeroPagesSearched = 16_384

    /// The result of a search for pages with data.
    enum DataSearch: Equatable {
        case page(Int)
        case none
        /// The search read too many pages of zeros and gave up. The pages not searched begin, or
        /// end, at `reached`.
        case tooManyZeros(reached: Int)
    }

    /// Finds the first page in `page..<end` that is not all zeros, and leaves it in `buffer` (one
    /// page).
    func nextPageWithData(
        _ descriptor: Int32, from page: Int, before end: Int, to buffer: UnsafeMutableRawPointer
    ) throws(Errno) -> DataSearch {
        var page = page
        for _ in 0..<Volume.zeroPagesSearched {
            guard let next = nextAllocatedPage(descriptor, from: page), next < end else {
                return .none
            }
            try readWholePage(descriptor, next, to: buffer)
            if !isZero(buffer, layout.pageBytes) { return .page(next) }
            page = next + 1
        }
        return .tooManyZeros(reached: page)
    }

    /// Returns the first page from `page` on for which the backing store has data; nil if there is
    /// none.
    func nextAllocatedPage(_ descriptor: Int32, from page: Int) -> Int? {
        do throws(Errno) {
            let found = try storage.lseek(descriptor, page * layout.pageBytes, SEEK_DATA)
            return max(page, found / layout.pageBytes)
        } catch {
            // `ENXIO` means no data from here on. After any other error all pages count as data.
            return error.rawValue == ENXIO ? nil : page
        }
    }

    private func readWholePage(
        _ descriptor: Int32, _ page: Int, to buffer: UnsafeMutableRawPointer
    ) throws(Errno) {
        let pageBytes = layout.pageBytes
        let got = try storage.pread(descriptor, buffer, pageBytes, at: page * pageBytes)
        (buffer + got).initializeMemory(as: UInt8.self, repeating: 0, count: pageBytes - got)
    }

    /// Returns the last page before `end` that is not zero, or -1 if there is none. Returns nil if
    /// the search gave up: holes cost nothing, but an attacker may have filled the backing store
    /// with zeros.
    func lastPageWithData(_ descriptor: Int32, before end: Int) throws(Errno) -> Int? {
        switch try previousPageWithData(descriptor, before: end) {
        case .page(let page): page
        case .none: -1
        case .tooManyZeros: nil
        }
    }

    /// Finds the last page before `end` that is not zero.
    func previousPageWithData(
        _ descriptor: Int32, before end: Int
    ) throws(Errno) -> DataSearch {
        let pageBytes = layout.pageBytes
        return try withTemporaryPage { buffer throws(Errno) in
            var end = end
            for _ in 0..<Volume.zeroPagesSearched {
                guard let page = lastAllocatedPage(descriptor, before: end) else { return .none }
                try readWholePage(descriptor, page, to: buffer)
                let offset = layout.recordOffset(ofPage: page)
                if !isZero(buffer + offset, pageBytes - offset) { return .page(page) }
                end = page
            }
            return .tooManyZeros(reached: end)
        }
    }

    /// Returns the last page before `end` for which the backing store has data.
    private func lastAllocatedPage(_ descriptor: Int32, before end: Int) -> Int? {
        func hasData(from page: Int) -> Bool {
            nextAllocatedPage(descriptor, from: page).map { $0 < end } ?? false
        }
        guard end > 0 else { return nil }
        // Go back in doubling steps, then bisect. The answer lies in `low..<high`.
        var high = end
        var step = 1
        while !hasData(from: max(end - step, 0)) {
            high = max(end - step, 0)
            if high == 0 { return nil }
            step *= 2
        }
        var low = max(end - step, 0)
        while high - low > 1 {
            let middle = low + (high - low) / 2
            if hasData(from: middle) { low = middle } else { high = middle }
        }
        return low
    }
}

/// A walk over all pages of an open file, from the first to the last.
///
/// Passes over the rightful holes of a sparse file. In any file it passes over more than
/// `Volume.zeroPagesSearched` zero pages in a row. But if the last page authenticates, the length
/// is genuine and the walk visits them all.
///
/// Concurrency: used by one thread. The caller holds the file's lock at each call and may release
/// it in between.
struct PageWalk {
    /// The next page to look at.
    private(set) var page = 0
    private let volume: Volume
    private let file: OpenFile
    /// How many pages of zeros in a row were read.
    private var zeroPages = 0
    private var hasOwnEnd: Bool?

    init(_ volume: Volume, _ file: OpenFile) {
        self.volume = volume
        self.file = file
    }

    var pages: Int { volume.layout.pageCount(forSize: file.sizeBytes) }

    /// Advances to the next page to look at. Returns the pages that were passed over although they
    /// are no holes: they were wiped.
    ///
    /// `opens` tells whether a page authenticates. It is called with the last page where a long
    /// stretch of zeros begins.
    mutating func skip(opens: (Int) throws(Errno) -> Bool) throws(Errno) -> Range<Int> {
        let last = pages - 1
        guard page > 0, page < last, file.pendingPages.areNone else {
            return page..<page
        }
        let allocated = min(volume.nextAllocatedPage(file.descriptor, from: page) ?? last, last)
        let isSparse = file.header?.isSparse == true
        // Zeros that the backing store has blocks for, or does not tell from holes.
        let isEndless = zeroPages > Volume.zeroPagesSearched
        let isLongHole = allocated - page > Volume.zeroPagesSearched
        var next = isSparse ? allocated : page
        let start = next
        if isEndless, try !isOwn(last, opens) {
            next = last
        } else if !isSparse, isLongHole {
            // Only an unclean end may excuse the hole, so the last page is read only in doubt.
            let isHonest = volume.isInDoubt ? try isOwn(last, opens) : false
            if !isHonest { next = allocated }
        }
        page = next
        return start..<next
    }

    private mutating func isOwn(
        _ last: Int, _ opens: (Int) throws(Errno) -> Bool
    ) throws(Errno) -> Bool {
        if let hasOwnEnd { return hasOwnEnd }
        let found = try opens(last)
        hasOwnEnd = found
        return found
    }

    /// Notes that `count` pages from `page` on were read. `areZeros`: all of them were zeros.
    mutating func looked(at count: Int, areZeros: Bool) {
        zeroPages = areZeros ? zeroPages + count : 0
        page += count
    }
}
