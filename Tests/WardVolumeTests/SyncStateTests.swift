import Testing
import WardFormat
import WardSimulatedStorage
import WardSystem

@testable import WardVolume

/// The changes of an open file that may not be durable, as a value: each event and its state.
@Suite struct SyncStateTests {
    private typealias Events = @Sendable (inout SyncState) -> Void

    private static let table: [(event: String, Events, cut: SyncState.Cut, isKeyUnsynced: Bool)] = [
        ("opened", { _ in }, .durable, false),
        ("a cut", { $0.cutMade() }, .uncommitted, false),
        (
            "a cut and a sync: the next key may come first",
            {
                $0.cutMade()
                $0.synced()
            }, .uncommitted, false
        ),
        (
            "a cut, then emptied in place",
            {
                $0.cutMade()
                $0.emptiedInPlace(hadPage: true, hadPages: false)
            }, .unsynced, true
        ),
        ("emptied", { $0.emptiedInPlace(hadPage: true, hadPages: false) }, .durable, true),
        (
            "a new file gets its first page",
            { $0.emptiedInPlace(hadPage: false, hadPages: false) }, .durable, false
        ),
        (
            "emptied with several pages",
            { $0.emptiedInPlace(hadPage: true, hadPages: true) }, .unsynced, true
        ),
        (
            "emptied and synced",
            {
                $0.emptiedInPlace(hadPage: true, hadPages: true)
                $0.synced()
            }, .unsynced, false
        ),
        (
            "emptied, cut and synced",
            {
                $0.emptiedInPlace(hadPage: true, hadPages: true)
                $0.cutSynced()
            }, .durable, false
        ),
        (
            "a further cut makes nothing safer",
            {
                $0.foreignPagesCut()
                $0.cutMade()
            }, .unsynced, false
        ),
        ("opened again too early", { $0.openedWithUnsyncedKey() }, .durable, true),
    ]

    @Test("Each event leads to one state")
    func events() {
        for (event, events, cut, isKeyUnsynced) in SyncStateTests.table {
            var state = SyncState()
            events(&state)
            #expect(state.cut == cut, "\(event)")
            #expect(state.isKeyUnsynced == isKeyUnsynced, "\(event)")
            #expect(state.isCutUnsynced == (cut == .unsynced), "\(event)")
        }
    }

    private static let transitions: [(name: String, Events)] = [
        ("openedWithUnsyncedKey", { $0.openedWithUnsyncedKey() }),
        ("cutMade", { $0.cutMade() }),
        ("foreignPagesCut", { $0.foreignPagesCut() }),
        ("emptied", { $0.emptiedInPlace(hadPage: true, hadPages: false) }),
        ("emptied of pages", { $0.emptiedInPlace(hadPage: true, hadPages: true) }),
        ("synced", { $0.synced() }),
        ("cutSynced", { $0.cutSynced() }),
    ]

    @Test("Only a sync makes a state safer", arguments: 0..<32)
    func sequences(seed: UInt64) {
        func danger(_ cut: SyncState.Cut) -> Int {
            switch cut {
            case .durable: 0
            case .uncommitted: 1
            case .unsynced: 2
            }
        }
        var random = SplitMix(seed: seed)
        var state = SyncState()
        for _ in 0..<200 {
            let (name, event) = SyncStateTests.transitions.randomElement(using: &random)!
            let before = state
            event(&state)
            if danger(state.cut) < danger(before.cut) { #expect(name == "cutSynced") }
            if before.isKeyUnsynced, !state.isKeyUnsynced {
                #expect(["synced", "cutSynced"].contains(name))
            }
            if name == "cutSynced" { #expect(state == SyncState()) }
        }
    }

    @Test("Failed syncs are counted, and the last error is kept")
    func failures() {
        let syncs = FileSyncs()
        #expect(syncs.failures == 0)
        syncs.noteFailure(.noSpace)
        syncs.noteFailure(.ioError)
        #expect(syncs.failures == 2)
        #expect(syncs.lastFailure == .ioError)
    }
}

/// The headers and records that an open file takes for its own.
@Suite struct FileHeaderStateTests {
    private func header(_ number: UInt8) -> StoredHeader {
        StoredHeader(
            header: FileHeader(
                protectionClass: .complete, fileID: [UInt8](repeating: number, count: 16),
                directoryID: [UInt8](repeating: 0, count: 16)),
            bytes: [UInt8](repeating: number, count: FileHeader.bytes), format: .version1)
    }

    /// A page 0 with this header, and a record that begins with `record`.
    private func page(_ header: StoredHeader, record: UInt8) -> [UInt8] {
        header.bytes + [UInt8](repeating: record, count: 512 - FileHeader.bytes)
    }

    private func state(_ header: StoredHeader?) -> FileHeaderState {
        FileHeaderState(directoryID: [UInt8](repeating: 0, count: 16), header)
    }

    @Test("A replaced header is the file's own until a sync")
    func replaced() {
        var state = state(header(1))
        state.willReplace(with: header(2).bytes)
        #expect(state.isOwnHeader(page(header(1), record: 0)))
        #expect(state.isOwnHeader(page(header(2), record: 0)), "it may be on the disk already")
        state.replaced(with: header(2))
        #expect(state.stored?.header.fileID == header(2).header.fileID)
        #expect(state.isOwnHeader(page(header(1), record: 0)))
        state.synced()
        #expect(!state.isOwnHeader(page(header(1), record: 0)))
        #expect(state.isOwnHeader(page(header(2), record: 0)))
    }

    @Test("The record of the open is the file's own until it has a new key")
    func record() {
        var state = state(header(1))
        state.opened(with: page(header(1), record: 7))
        #expect(state.isOwnRecord(page(header(9), record: 7)))
        #expect(!state.isOwnRecord(page(header(9), record: 8)))
        state.synced()
        #expect(state.isOwnRecord(page(header(9), record: 7)))
        state.put(header(2))
        state.keyChanged()
        #expect(!state.isOwnRecord(page(header(9), record: 7)))
        #expect(!state.isOwnRecord(page(header(1), record: 7)))
        #expect(state.isOwnRecord(page(header(2), record: 8)))
    }

    @Test("A file without a header has no page of its own")
    func none() {
        var state = state(nil)
        #expect(!state.isOwnHeader(page(header(1), record: 0)))
        #expect(!state.isOwnRecord([UInt8](repeating: 0, count: 512)))
        state.put(header(1))
        #expect(state.isOwnHeader(page(header(1), record: 0)))
        state.put(nil)
        #expect(!state.isOwnHeader(page(header(1), record: 0)))
    }

    @Test("The earliest headers are forgotten: there may be many without a sync")
    func many() {
        var state = state(header(0))
        let last = UInt8(FileHeaderState.mostEarlierHeaders + 1)
        for number in 1...last { state.replaced(with: header(number)) }
        #expect(!state.isOwnHeader(page(header(0), record: 0)))
        for number in 1...last { #expect(state.isOwnHeader(page(header(number), record: 0))) }
    }
}

@Suite struct AtomicValueTests {
    @Test("Each kind of value comes back from its word")
    func words() {
        let number = AtomicValue(-5)
        #expect(number.value == -5)
        number.value = .max
        #expect(number.value == .max)
        let flag = AtomicValue(true)
        #expect(flag.value == true)
        flag.value = false
        #expect(flag.value == false)
        let known = AtomicValue<ProtectionClass?>(nil)
        #expect(known.value == nil)
        for protectionClass in ProtectionClass.allCases {
            known.value = protectionClass
            #expect(known.value == protectionClass)
        }
        known.value = nil
        #expect(known.value == nil)
    }
}
