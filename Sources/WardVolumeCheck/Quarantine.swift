import Glibc
import Synchronization
import WardSystem
import WardVolume

/// Keeps the data that a repair takes out of the volume, in `ward.quarantine` in the root of the
/// backing directory. Each run has a directory there (docs/format.md §2).
///
/// ```
/// ward.quarantine/YYYY-MM-DDTHH.MM.SSZ/
///     1       the whole ciphertext, or the replaced pages in their places
///     1.txt   where it was and why, without a name in clear
/// ```
///
/// An item is durable before the repair changes anything. Concurrency: any thread; `state` is
/// guarded by its mutex, which is held during writes to the backing store.
final class Quarantine: Sendable {
    static let directoryName = "ward.quarantine"

    private struct State {
        var parent: Int32 = -1
        var run: Int32 = -1
        var runName = ""
        var count = 0
    }

    private let volume: Volume
    private var storage: any Storage { volume.storage }
    private var root: Int32 { volume.store.root }
    private let name: String
    private let state = Mutex(State())

    init(_ volume: Volume, name: String) {
        self.volume = volume
        self.name = name
    }

    deinit {
        state.withLock {
            if $0.run >= 0 { storage.close($0.run) }
            if $0.parent >= 0 { storage.close($0.parent) }
        }
    }

    /// Keeps pages of a file, each at its offset in the file; holes stay holes. Returns the item's
    /// path below the backing directory.
    func keep(
        pages: [Range<Int>], of descriptor: Int32, _ note: [String]
    ) throws(Errno) -> String {
        try state.withLock { state throws(Errno) in
            let item = try next(&state)
            try withNewFile(item, state.run) { file throws(Errno) in
                for range in pages { try volume.copyPages(range, of: descriptor, to: file) }
            }
            return try finish(
                item, note + ["pages of \(volume.pageBytes) bytes: \(Quarantine.text(pages))"],
                state)
        }
    }

    /// Keeps bytes that are not a file's: an attribute's value, a record.
    func keep(_ bytes: [UInt8], _ note: [String]) throws(Errno) -> String {
        try state.withLock { state throws(Errno) in
            let item = try next(&state)
            try withNewFile(item, state.run) { file throws(Errno) in
                try write(bytes, file)
            }
            return try finish(item, note, state)
        }
    }

    /// Moves the file with this stored name into the quarantine.
    func move(
        _ directory: Int32, _ stored: UnsafePointer<CChar>, _ note: [String]
    ) throws(Errno) -> String {
        try state.withLock { state throws(Errno) in
            let item = try next(&state)
            // The note comes first: a power cut in between leaves a note without its item, and
            // nothing is lost.
            let place = try finish(item, note, state)
            // The run's directory is new, and `next` never gives a number twice: the name is free.
            try storage.renameat(directory, stored, state.run, item, flags: 0)
            try storage.fsync(state.run)
            try storage.fsync(directory)
            return place
        }
    }

    // MARK: Steps

    private func next(_ state: inout State) throws(Errno) -> String {
        if state.run < 0 { try begin(&state) }
        state.count += 1
        return String(state.count)
    }

    private func begin(_ state: inout State) throws(Errno) {
        do throws(Errno) {
            try storage.mkdirat(root, Quarantine.directoryName, 0o700)
        } catch .fileExists {
        }
        if state.parent < 0 {
            state.parent = try storage.openat(
                root, Quarantine.directoryName, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, mode: 0)
        }
        try storage.fsync(root)
        // Two runs may begin in one second, or a power cut may have ended one.
        for attempt in 1...1000 {
            let runName = attempt == 1 ? name : "\(name)-\(attempt)"
            do throws(Errno) {
                try storage.mkdirat(state.parent, runName, 0o700)
            } catch .fileExists {
                continue
            }
            // Synced before it is used: its items are only as durable as its name.
            try storage.fsync(state.parent)
            state.run = try storage.openat(
                state.parent, runName, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, mode: 0)
            state.runName = runName
            return
        }
        throw .fileExists
    }

    private func finish(
        _ item: String, _ note: [String], _ state: State
    ) throws(Errno) -> String {
        try withNewFile(item + ".txt", state.run) { file throws(Errno) in
            try write(Array((note.joined(separator: "\n") + "\n").utf8), file)
        }
        try storage.fsync(state.run)
        return "\(Quarantine.directoryName)/\(state.runName)/\(item)"
    }

    private func withNewFile(
        _ name: String, _ directory: Int32, _ body: (Int32) throws(Errno) -> Void
    ) throws(Errno) {
        let file = try storage.openat(
            directory, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode: 0o600)
        defer { storage.close(file) }
        try body(file)
        try storage.fsync(file)
    }

    private func write(_ bytes: [UInt8], _ file: Int32) throws(Errno) {
        guard !bytes.isEmpty else { return }
        try bytes.withUnsafeBufferPointer { source throws(Errno) in
            try storage.pwrite(file, source.baseAddress!, source.count, at: 0)
        }
    }

    /// "3, 17-19".
    private static func text(_ pages: [Range<Int>]) -> String {
        var ranges: [Range<Int>] = []
        for range in pages.filter({ !$0.isEmpty }).sorted(by: { $0.lowerBound < $1.lowerBound }) {
            if let last = ranges.last, range.lowerBound <= last.upperBound {
                ranges[ranges.count - 1] =
                    last.lowerBound..<max(last.upperBound, range.upperBound)
            } else {
                ranges.append(range)
            }
        }
        return ranges.map {
            $0.count == 1 ? "\($0.lowerBound)" : "\($0.lowerBound)-\($0.upperBound - 1)"
        }
        .joined(separator: ", ")
    }
}
