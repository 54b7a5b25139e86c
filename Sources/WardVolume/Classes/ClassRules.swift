import Synchronization
import WardCrypto
import WardFormat
import WardSystem

/// The rules of classes: the class of a new file, the work that a change of a class takes, the
/// limit in a synchronised directory.
///
/// The decisions are functions of values, in `ClassRules+Decisions.swift`. The requests that carry
/// them out are methods of `Volume`. This object has the facts of this mount on which the rules
/// depend. These are marks of synchronised directories, and the sign of classes without a sync.
///
/// Concurrency: any thread; all of it is constant or atomic.
final class ClassRules: Sendable {
    /// How many directories may wait to be looked through.
    static let mostArrivals = 64
    private static let syncWord = "sync "

    private let root: Node
    private let marks: Atomic<Bool>
    /// Prefix of this mount's `syncMark`. No other mount has the same.
    private let syncMarkStart = ClassRules.syncWord + Base64URL.encode(SystemRandom.bytes(9)) + " "
    /// Looks through directories that were moved into a marked directory.
    private let arrivals = SerialQueue("ward-sync")
    private let waiting = Atomic<Int>(0)

    init(root: Node, hasMarks: Bool) {
        self.root = root
        marks = Atomic(hasMarks)
    }

    // MARK: Marks

    /// True if this mount has seen a directory that is marked as synchronised. Until then no
    /// request looks for marks.
    var hasMarks: Bool { marks.load(ordering: .sequentiallyConsistent) }

    func noteMark() { marks.store(true, ordering: .sequentiallyConsistent) }

    /// Returns the nearest marked directory that `directory` is or lies in; nil if there is none.
    func markedDirectory(over directory: Node) -> Node? {
        guard hasMarks else { return nil }
        var current = directory
        while true {
            // Each directory with a node below it has its state in memory.
            if current.directory?.isMarked == true { return current }
            guard current !== root, let parent = current.link?.parent else { return nil }
            current = parent
        }
    }

    /// Like `markedDirectory(over:)`, for a file by each of its known names. Also returns the name
    /// that is inside.
    func markedDirectory(overAnyNameOf node: Node) -> (marked: Node, link: NodeLink)? {
        guard hasMarks else { return nil }
        for link in node.allLinks {
            if let marked = markedDirectory(over: link.parent) { return (marked, link) }
        }
        return nil
    }

    // MARK: Classes without a sync

    /// The value of `unsyncedClassName`: names this mount and counts the failed syncs.
    func syncMark(failures: UInt64) -> [UInt8] { Array("\(syncMarkStart)\(failures)".utf8) }

    /// Returns the count in a `syncMark` of this mount; nil for another value.
    func failures(in mark: [UInt8]) -> UInt64? {
        let start = Array(syncMarkStart.utf8)
        guard mark.starts(with: start) else { return nil }
        return UInt64(String(decoding: mark.dropFirst(start.count), as: UTF8.self))
    }

    /// Whether a value looks like a `syncMark`, of this mount or another.
    static func isSyncMark(_ value: UnsafeRawBufferPointer) -> Bool {
        value.starts(with: syncWord.utf8)
    }

    // MARK: Moved in

    /// Runs `job`, which looks through a directory, on a thread of its own. False where too many
    /// wait.
    func addArrival(_ job: @escaping @Sendable () -> Void) -> Bool {
        guard waiting.load(ordering: .relaxed) < ClassRules.mostArrivals else { return false }
        waiting.add(1, ordering: .relaxed)
        arrivals.add { [self] in
            defer { waiting.subtract(1, ordering: .relaxed) }
            job()
        }
        return true
    }

    /// True while no directory waits and none is looked through.
    var isIdle: Bool { waiting.load(ordering: .sequentiallyConsistent) == 0 }
}
