import CWardLinux
import Glibc
import WardFormat
import WardSystem

// Walks over backing files. Nobody vouches for the length of one before its last page
// authenticates: whoever can write to the store makes a file of a few bytes as long as the store
// allows. So every walk goes by what the store has bytes for (`SEEK_DATA` of lseek(2)), and gives
// up after so many pages of zeros.
extension Volume {
    /// Zero pages that are looked at one by one before a search is given up.
    static let zeroPagesSearched = 16_384

    /// Where a search for pages with data has come to.
    enum DataSearch: Equatable {
        case page(Int)
        case none
        /// So many pages of zeros were read that it was given up. `reached`: what is left begins,
        /// or ends, there.
        case tooManyZeros(reached: Int)
    }

    /// The first page from `page` on and before `end` that is not all zeros. It is in `buffer` then
    /// (a page).
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

    /// The first page from `page` on for which the store has anything; nil where there is none.
    func nextAllocatedPage(_ descriptor: Int32, from page: Int) -> Int? {
        do throws(Errno) {
            let found = try storage.lseek(descriptor, page * layout.pageBytes, SEEK_DATA)
            return max(page, found / layout.pageBytes)
        } catch {
            // Anything but "nothing from here on": a store that can't tell has data everywhere.
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

    /// The last page before `end` that is not zero, -1 where there is none; nil where the search
    /// was given up: holes cost nothing, but somebody may have filled the store with zeros.
    func lastPageWithData(_ descriptor: Int32, before end: Int) throws(Errno) -> Int? {
        switch try previousPageWithData(descriptor, before: end) {
        case .page(let page): page
        case .none: -1
        case .tooManyZeros: nil
        }
    }

    /// The last page before `end` that is not zero.
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

    /// The last page before `end` for which the store has anything.
    private func lastAllocatedPage(_ descriptor: Int32, before end: Int) -> Int? {
        func hasData(from page: Int) -> Bool {
            nextAllocatedPage(descriptor, from: page).map { $0 < end } ?? false
        }
        guard end > 0 else { return nil }
        // Backwards in doubling steps, then by halves: the answer lies in `low..<high`.
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
/// The rightful holes of a sparse file are passed over. So is a stretch of zeros of more pages than
/// `Volume.zeroPagesSearched`, in any file, unless the last page authenticates: then the length is
/// the file's own.
///
/// Concurrency: used by one thread. The file's lock is held at each call, and may be given back in
/// between.
struct PageWalk {
    /// The page to be looked at next.
    private(set) var page = 0
    private let volume: Volume
    private let file: OpenFile
    /// Pages of zeros that were read one after the other.
    private var zeroPages = 0
    private var hasOwnEnd: Bool?

    init(_ volume: Volume, _ file: OpenFile) {
        self.volume = volume
        self.file = file
    }

    var pages: Int { volume.layout.pageCount(forSize: file.sizeBytes) }

    /// Goes on to the next page that has to be looked at. Returns those that were passed over
    /// although they are no holes: they were wiped. `opens`: whether a page authenticates; asked of
    /// the last one, where a long stretch of zeros begins.
    mutating func skip(opens: (Int) throws(Errno) -> Bool) throws(Errno) -> Range<Int> {
        let last = pages - 1
        guard page > 0, page < last, file.pendingPages.load(ordering: .acquiring) == 0 else {
            return page..<page
        }
        let allocated = min(volume.nextAllocatedPage(file.descriptor, from: page) ?? last, last)
        let isSparse = file.header?.isSparse == true
        // Zeros that the store has blocks for, or does not tell from holes.
        let isEndless = zeroPages > Volume.zeroPagesSearched
        let isLongHole = allocated - page > Volume.zeroPagesSearched
        var next = isSparse ? allocated : page
        let start = next
        if isEndless, try !isOwn(last, opens) {
            next = last
        } else if !isSparse, isLongHole {
            // Only an unclean end may excuse it, which somebody may wait for.
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

    /// These pages from `page` on were read; `areZeros`: there was nothing else in them.
    mutating func looked(at count: Int, areZeros: Bool) {
        zeroPages = areZeros ? zeroPages + count : 0
        page += count
    }
}
