import Testing
import WardSimulatedStorage

@testable import WardVolume

/// The end of an open file, as a value: each event and the state after it.
@Suite struct FileExtentTests {
    private typealias Events = @Sendable (inout FileExtent) -> Void

    private static func state(
        _ sizeBytes: Int, _ tail: FileExtent.Tail = .none, isEndVerified: Bool = true,
        needsMending: Bool = false, needsHint: Bool = true, isReadyForHoles: Bool = false
    ) -> FileExtent {
        FileExtent(
            sizeBytes: sizeBytes, tail: tail, isEndVerified: isEndVerified,
            needsMending: needsMending, needsHint: needsHint, isReadyForHoles: isReadyForHoles)
    }

    /// A closed file with its hint, just opened.
    private static let opened = FileExtent.opened(sizeBytes: 5000, hasTail: true, needsHint: false)
    /// A file that was written since.
    private static let written = state(5000)

    private static let table: [(event: String, before: FileExtent, Events, after: FileExtent)] = [
        ("made", FileExtent(), { $0 = .made }, state(0, needsHint: false)),
        (
            "opened without a hint", FileExtent(),
            { $0 = .opened(sizeBytes: 5000, hasTail: false, needsHint: true) },
            state(5000, isEndVerified: false)
        ),
        (
            "salvaged", .salvaged, { $0.salvaged(sizeBytes: 5000) },
            state(5000, .remains)
        ),
        ("end verified", opened, { $0.endVerified() }, state(5000, .remains, needsHint: false)),
        (
            "end torn", opened,
            {
                $0.endVerified()
                $0.endTorn()
            }, state(5000, .remains, needsMending: true, needsHint: false)
        ),
        (
            "written at the same size: the hint stays", opened,
            { $0.endWritten(sizeBytes: 5000) }, state(5000, .remains, needsHint: false)
        ),
        (
            "a torn end written", state(5000, needsMending: true),
            { $0.endWritten(sizeBytes: 5000) }, written
        ),
        (
            "grown: the hint goes before", opened,
            {
                $0.hintRemoved()
                $0.endWritten(sizeBytes: 9000)
            }, state(9000)
        ),
        (
            "cut", written,
            {
                $0.endWritten(sizeBytes: 10)
                $0.shrunk()
                $0.endSynced()
                $0.cut()
            }, state(10)
        ),
        (
            "cut, but the new end is not durable", written,
            {
                $0.endWritten(sizeBytes: 10)
                $0.shrunk()
            }, state(10, .pages(needsSync: true))
        ),
        (
            "cut, but the old pages stay", written,
            {
                $0.endWritten(sizeBytes: 10)
                $0.shrunk()
                $0.endSynced()
                $0.cutFailed()
            }, state(10, .pages(needsSync: false))
        ),
        (
            "a late cut: the end may have changed", state(10, .pages(needsSync: false)),
            { $0.cutIsDue() }, state(10, .pages(needsSync: true))
        ),
        ("a late cut of no pages", state(10, .remains), { $0.cutIsDue() }, state(10, .remains)),
        ("a sync without old pages", state(10, .remains), { $0.endSynced() }, state(10, .remains)),
        (
            "emptied in place", state(5000, .remains, needsMending: true, needsHint: false),
            { $0.emptied() }, state(0, .remains)
        ),
        (
            "emptied with its page 0", state(5000, .pages(needsSync: true)),
            {
                $0.emptied()
                $0.cut()
            }, state(0)
        ),
        (
            "emptied in place, and page 0 is not durable", written,
            {
                $0.emptied()
                $0.cutFailedBehindHeader(needsSync: true)
            }, state(0, .pages(needsSync: true))
        ),
        (
            "a failed write beyond the end, put back", state(9000, isReadyForHoles: true),
            { $0.endPutBack(sizeBytes: 5000) }, state(5000, .remains)
        ),
        (
            "a failed write", state(5000, .remains, needsHint: false, isReadyForHoles: true),
            { $0.writeFailed() }, state(5000, .remains)
        ),
        (
            "a failed write that could not be undone", written,
            {
                $0.writeFailed()
                $0.endTorn()
                $0.cutFailed()
            }, state(5000, .remains, needsMending: true)
        ),
        (
            "the hint put", written,
            {
                $0.hintTried()
                $0.hintPut()
            }, state(5000, .remains, needsHint: false)
        ),
        (
            "an empty file has no hint", state(0, .remains),
            {
                $0.hintRemoved()
                $0.hintPut()
            }, state(0, needsHint: false)
        ),
        (
            "the hint failed", written,
            {
                $0.hintTried()
                $0.hintFailed()
            }, state(5000, .remains, needsHint: false)
        ),
        (
            "the hint failed behind old pages", state(10, .pages(needsSync: true)),
            { $0.hintFailed() }, state(10, .pages(needsSync: true), needsHint: false)
        ),
        (
            "a hole prepared", written, { $0.preparedForHoles() },
            state(5000, isReadyForHoles: true)
        ),
        (
            "written in place: a hole stays prepared", state(5000, isReadyForHoles: true),
            { $0.endWritten(sizeBytes: 5000) }, state(5000, isReadyForHoles: true)
        ),
        (
            "the header changes", state(5000, isReadyForHoles: true), { $0.becomesSparse() },
            written
        ),
    ]

    @Test("Each event leads to one state")
    func events() {
        for (event, before, events, after) in FileExtentTests.table {
            var extent = before
            events(&extent)
            #expect(extent == after, "\(event)")
        }
    }

    /// Every transition, with the states in which it may happen: a tail is cut off before the size
    /// changes.
    private static let transitions:
        [(name: String, mayHappen: @Sendable (FileExtent) -> Bool, Events)] = [
            ("endVerified", { _ in true }, { $0.endVerified() }),
            ("endTorn", { _ in true }, { $0.endTorn() }),
            ("endWritten", { _ in true }, { $0.endWritten(sizeBytes: $0.sizeBytes) }),
            ("grown", { $0.tail == .none }, { $0.endWritten(sizeBytes: $0.sizeBytes + 4000) }),
            (
                "shrunk", { $0.tail == .none && $0.sizeBytes > 4000 },
                {
                    $0.endWritten(sizeBytes: $0.sizeBytes - 4000)
                    $0.shrunk()
                }
            ),
            ("emptied", { _ in true }, { $0.emptied() }),
            (
                "endPutBack", { !$0.hasUncutPages && $0.sizeBytes > 4000 },
                { $0.endPutBack(sizeBytes: $0.sizeBytes - 4000) }
            ),
            ("writeFailed", { _ in true }, { $0.writeFailed() }),
            ("endSynced", { _ in true }, { $0.endSynced() }),
            ("cutIsDue", { _ in true }, { $0.cutIsDue() }),
            ("cut", { !$0.needsSyncBeforeCut }, { $0.cut() }),
            ("cutFailed", { _ in true }, { $0.cutFailed() }),
            (
                "cutFailedBehindHeader", { $0.sizeBytes == 0 },
                { $0.cutFailedBehindHeader(needsSync: true) }
            ),
            ("hintRemoved", { !$0.needsSyncBeforeCut }, { $0.hintRemoved() }),
            ("hintTried", { _ in true }, { $0.hintTried() }),
            ("hintPut", { $0.tail == .none }, { $0.hintPut() }),
            ("hintFailed", { _ in true }, { $0.hintFailed() }),
            ("hintShown", { _ in true }, { $0.hintShown() }),
            ("preparedForHoles", { _ in true }, { $0.preparedForHoles() }),
            ("becomesSparse", { _ in true }, { $0.becomesSparse() }),
        ]

    @Test("No sequence of events forgets a tail, a torn end or a missing hint", arguments: 0..<64)
    func sequences(seed: UInt64) {
        var random = SplitMix(seed: seed)
        var extent: FileExtent = Bool.random(using: &random) ? .made : FileExtentTests.opened
        let published = PublishedExtent()
        for _ in 0..<500 {
            let (name, mayHappen, event) =
                FileExtentTests.transitions.randomElement(using: &random)!
            guard mayHappen(extent) else { continue }
            let before = extent
            event(&extent)
            published.publish(extent)

            #expect(extent.sizeBytes >= 0)
            #expect(!extent.needsSyncBeforeCut || extent.hasUncutPages, "\(name)")
            if before.isEndVerified {
                #expect(extent.isEndVerified, "\(name): an end that was verified stays so")
            }
            if before.hintWasShown { #expect(extent.hintWasShown, "\(name)") }
            if extent.sizeBytes != before.sizeBytes {
                #expect(extent.needsHint && !extent.isReadyForHoles, "\(name): another size")
            }
            if before.needsMending, !extent.needsMending {
                #expect(["endWritten", "grown", "shrunk", "emptied"].contains(name))
            }
            if before.needsHint, !extent.needsHint {
                #expect(["hintTried", "hintPut", "hintFailed"].contains(name))
            }
            if before.tail != .none, extent.tail == .none {
                #expect(["cut", "hintRemoved"].contains(name))
                #expect(!before.needsSyncBeforeCut, "a cut before the end was durable")
            }
            if before.needsSyncBeforeCut, !extent.needsSyncBeforeCut {
                #expect(name == "endSynced")
            }
            if name == "hintPut", extent.sizeBytes > 0 {
                #expect(extent.tail == .remains, "the hint is cut off before the size changes")
            }
            #expect(published.sizeBytes == extent.sizeBytes)
            #expect(published.isEndVerified == extent.isEndVerified)
            #expect(published.needsHint == extent.needsHint)
            #expect(published.hintWasShown == extent.hintWasShown)
            #expect(published.hasUncutPages == extent.hasUncutPages)
        }
    }
}
