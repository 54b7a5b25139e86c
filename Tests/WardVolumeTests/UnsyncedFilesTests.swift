import Testing

@testable import WardVolume

/// Facts about closed files that must be remembered are kept, also when there are very many.
@Suite struct UnsyncedFilesTests {
    private let files = UnsyncedFiles()
    private let room = UInt64(UnsyncedFiles.mostFiles)

    private func fill() {
        for inode in 0..<room { files.note(inode) }
    }

    @Test func whatIsSyncedIsForgotten() {
        files.note(1)
        let before = files.notesMade
        files.note(2)
        files.forget(through: before)
        #expect(!files.contains(1))
        #expect(files.contains(2))
        files.forget(2)
        #expect(!files.contains(2))
    }

    @Test func whatIsUnderWayIsNotForgotten() {
        let (one, other) = (Owner(), Owner())
        files.note(1, by: one)
        files.note(1, by: other)
        files.forget(through: files.notesMade)
        #expect(files.contains(1))
        files.end(by: one)
        files.forget(through: files.notesMade)
        #expect(files.contains(1), "another one is at it")
        files.end(by: other)
        files.end(by: other)
        #expect(files.contains(1))
        #expect(!files.contains(2))
        files.forget(through: files.notesMade)
        #expect(!files.contains(1))
    }

    private final class Owner {}

    @Test func whereThereIsNoRoomItMayBeAnyFile() {
        fill()
        #expect(!files.contains(room))
        #expect(!files.noteIfRoom(room))
        #expect(!files.contains(room))
        files.note(room)
        #expect(files.contains(room) && files.contains(room + 1))
        files.forget(through: files.notesMade)
        #expect(!files.contains(room) && !files.contains(0))
    }

    @Test func whatIsUnderWayHasRoomAndCountsWhenItEnds() {
        fill()
        let owner = Owner()
        files.note(room, by: owner)
        #expect(files.contains(room))
        #expect(!files.contains(room + 1))
        let before = files.notesMade
        files.end(by: owner)
        files.forget(through: before)
        #expect(files.contains(room), "it ended after that sync")
        files.forget(through: files.notesMade)
        #expect(!files.contains(room))
    }
}
