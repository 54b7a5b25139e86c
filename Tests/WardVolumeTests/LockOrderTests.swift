import Foundation
import Testing
import WardSystem

@testable import WardVolume

/// The order of the mutexes of a volume, and its check in debug builds.
@Suite struct LockOrderTests {
    @Test("A thread takes a later mutex, and neither the same one again nor an earlier one")
    func order() {
        for (number, held) in LockRank.allCases.enumerated() {
            for (other, taken) in LockRank.allCases.enumerated() {
                #expect(
                    HeldLocks([held]).violation(taking: taken) == (other > number ? nil : held),
                    "\(taken) inside \(held)")
            }
        }
        #expect(HeldLocks().violation(taking: .directoryHandle) == nil)
    }

    @Test("Every mutex that is held counts, also after others were given back")
    func several() {
        var held = HeldLocks([.file, .content])
        held.remove(.file)
        #expect(held == HeldLocks([.content]))
        #expect(held.violation(taking: .file) == .content)
        #expect(held.violation(taking: .key) == nil)
        held.insert(.key)
        #expect(held.violation(taking: .file) == .key)
    }

    @Test("An exception excuses its own mutexes, and no other")
    func exceptions() {
        #expect(HeldLocks([.file]).violation(taking: .open, .storeLater) == nil)
        #expect(HeldLocks([.file, .content]).violation(taking: .open, .storeLater) == .content)
        #expect(HeldLocks([.open]).violation(taking: .open, .storeLater) == .open)
        let inEviction = HeldLocks([.eviction, .openNodes])
        #expect(inEviction.violation(taking: .file, .eviction) == nil)
        #expect(inEviction.violation(taking: .file) == .openNodes)
        #expect(HeldLocks([.content]).violation(taking: .file, .eviction) == .content)
    }

    /// The seventh line of the document names no single mutex, and the `Mutex` of line 6 have no
    /// rank.
    @Test("The ranks are the order in docs/architecture.md")
    func document() throws {
        let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
            .deletingLastPathComponent().deletingLastPathComponent()
        let text = try String(
            contentsOf: root.appendingPathComponent("docs/architecture.md"), encoding: .utf8)
        let list = try #require(
            text.components(separatedBy: "Threads take the mutexes of a volume in this order").last)
        var named: [String] = []
        for number in 1...6 {
            // A long line goes on in the next one.
            let line = try #require(
                list.replacingOccurrences(of: ",\n   ", with: ", ").split(separator: "\n")
                    .first { $0.hasPrefix("\(number). ") })
            named += line.dropFirst(3).components(separatedBy: ", ").map {
                $0.replacingOccurrences(of: "`", with: "")
            }
        }
        named.removeAll { ["examined", "the keyring's mutex"].contains($0) }
        #expect(named == LockRank.allCases.dropLast().map(\.name))
    }

    #if DEBUG || CHECKED
        @Test("Each thread has its own list of the mutexes that it holds")
        func threads() {
            let file = ReadWriteLock(.file)
            let key = Lock(.key)
            let content = ContentLock()
            file.withReadLock {
                content.takeUntilGivenBack()
                #expect(key.withLock { LockPlace.heldHere } == HeldLocks([.file, .content, .key]))
                SystemThread.start("other") { #expect(LockPlace.heldHere == HeldLocks()) }.join()
            }
            #expect(LockPlace.heldHere == HeldLocks([.content]))
            content.giveBack()
            file.withWriteLock { #expect(LockPlace.heldHere == HeldLocks([.file])) }
            #expect(throws: Errno.ioError) {
                try key.withLock { () throws(Errno) in throw .ioError }
            }
            #expect(LockPlace.heldHere == HeldLocks())
        }
    #endif
}
