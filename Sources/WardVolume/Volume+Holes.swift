import CWardLinux
import Glibc
import WardFormat
import WardSystem

// Holes: punching and zeroing. Everything here runs with the file's lock held for writing.
extension Volume {
    /// Makes `start..<end` (inside the file) read as zeros; whole pages in between become holes.
    func zero(
        _ file: OpenFile, from start: Int, to end: Int, _ caller: Caller, _ context: WorkerContext
    ) throws(Errno) {
        let end = min(end, file.sizeBytes)
        guard start < end else { return }
        let lastPage = layout.pageCount(forSize: file.sizeBytes) - 1
        var firstWhole = layout.page(at: start)
        if start > layout.start(ofPage: firstWhole) || firstWhole == 0 { firstWhole += 1 }
        // The last page stays real: it carries the size.
        let afterWhole = min(
            end >= layout.start(ofPage: lastPage) ? lastPage : layout.page(at: end), lastPage)
        guard firstWhole < afterWhole else {
            try storeZeros(file, start, end, caller, context)
            return
        }
        try storeZeros(file, start, min(end, layout.start(ofPage: firstWhole)), caller, context)
        try storeZeros(file, max(start, layout.start(ofPage: afterWhole)), end, caller, context)
        try enter(file, .allocate, caller, context)
        context.unlockContent()
        settle(file)
        try makeSparse(file)
        if !file.mayPunch {
            // A hole reaches the disk with the journal, before data: by itself it would be a wiped page, or, behind the end
            // that the disk knows, a truncation, and no page around it needs to be young enough to excuse it. So the
            // header and the end go first: once, until the size changes.
            try syncData(file)
            file.mayPunch = true
        }
        do throws(Errno) {
            try storage.fallocate(
                file.descriptor, mode: FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                offsetBytes: firstWhole * layout.pageBytes,
                lengthBytes: (afterWhole - firstWhole) * layout.pageBytes)
        } catch .notSupported {
            try storeZeros(
                file, layout.start(ofPage: firstWhole), layout.start(ofPage: afterWhole), caller,
                context)
        }
        noteChange(file, sizeChanged: false)
    }

    private func storeZeros(
        _ file: OpenFile, _ start: Int, _ end: Int, _ caller: Caller, _ context: WorkerContext
    ) throws(Errno) {
        var at = start
        while at < end {
            let count = min(end - at, 1 << 18)
            try store(file, .zeros, offset: at, count: count, .allocate, caller, context)
            at += count
        }
    }
}
