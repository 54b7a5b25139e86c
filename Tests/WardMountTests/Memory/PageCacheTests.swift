import Foundation
import Testing

extension MountSuite {
    /// The kernel's page cache has no page of a class A file after a lock.
    @Suite struct PageCacheTests {
        /// 40 full pages, and one that is not full.
        private static let bytes = 40 * 4096 + 100

        @Test(
            "No page of a class A file stays in the page cache, open and mapped though it is",
            arguments: User.usual)
        func empty(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            let content = String(repeating: Planted.token(), count: Self.bytes / 16 + 1)
            for fileClass in FileClass.allCases {
                try StateWalk.makeDirectory(of: fileClass, with: probe)
                let top = fileClass.letter
                #expect(probe.writeFile("\(top)/data", content) == .ok)
                #expect(probe.open("\(top)/data", "rw", as: top) == .ok)
                #expect(probe.mmap(top, Self.bytes, "rw", as: top) == .ok)
                #expect(probe.mmap(top, Self.bytes, "r", as: top + " again") == .ok)
                #expect(probe.poke(top, at: 5000, "dirty") == .ok)
                #expect(probe.call("digest", "\(top)/data").succeeded)
            }
            let full = Outcome.number(41)
            for fileClass in FileClass.allCases {
                #expect(probe.call("resident", fileClass.letter) == full, "\(fileClass)")
                expectCached(probe, fileClass, isEmpty: false, "unlocked")
            }
            try volume.lock()
            try volume.advance(seconds: 10)
            for fileClass in FileClass.allCases {
                expectCached(probe, fileClass, isEmpty: fileClass == .complete, "locked")
            }
            try volume.advance(seconds: 25 * 3600)
            for fileClass in FileClass.allCases {
                let isGone = fileClass == .complete || fileClass == .completeWhenUserInactive
                expectCached(probe, fileClass, isEmpty: isGone, "CX expired")
            }
            try volume.unlock()
            #expect(probe.touch("A", at: 5000, 5) == .data("dirty"))
            expectCached(probe, .complete, isEmpty: false, "unlocked again")
            try volume.reboot()
            for fileClass in FileClass.allCases {
                expectCached(probe, fileClass, isEmpty: fileClass != .none, "before first unlock")
            }
        }

        private func expectCached(
            _ probe: Probe, _ fileClass: FileClass, isEmpty: Bool, _ state: String,
            sourceLocation: SourceLocation = #_sourceLocation
        ) {
            let top = fileClass.letter
            for (what, outcome) in [
                ("mincore", probe.call("resident", top)),
                ("mincore, other mapping", probe.call("resident", top + " again")),
                ("cachestat", probe.call("cached", top)),
            ] where outcome != .failure("ENOSYS") {
                #expect(
                    isEmpty ? outcome == .number(0) : outcome.succeeded && outcome != .number(0),
                    "\(fileClass.letter), \(state), \(what): \(outcome)",
                    sourceLocation: sourceLocation)
            }
        }
    }
}
