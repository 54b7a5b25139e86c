import Testing

@testable import WardSystem

@Suite struct PathBytesTests {
    @Test(
        "a path is inside a directory by its bytes",
        arguments: [
            ("/a", "/a", true), ("/a/b", "/a", true), ("/ab", "/a", false), ("/a", "/a/b", false),
            ("/a", "/", true), ("/", "/", true),
            // A name that begins with a combining accent: Swift sees no slash before it.
            ("/a/\u{301}b", "/a", true),
            // "é" as one scalar and as two: two directories.
            ("/e\u{301}/b", "/\u{e9}", false),
        ])
    func inside(path: String, directory: String, isInside: Bool) {
        #expect(PathBytes.isInside(path, directory) == isInside)
    }

    @Test(
        "a path is taken apart by its bytes",
        arguments: [
            ("/a/b", "/a", "b"), ("/a", "/", "a"), ("a", ".", "a"), ("/", "/", ""),
            ("/a/\u{301}b", "/a", "\u{301}b"), ("/\u{301}", "/", "\u{301}"),
        ])
    func parts(path: String, parent: String, last: String) {
        #expect(PathBytes.isSame(PathBytes.parent(path), parent))
        #expect(PathBytes.isSame(PathBytes.lastComponent(path), last))
    }

    @Test("the mount that a path lies in is found by bytes")
    func covering() {
        let text = """
            22 28 0:20 / / rw - ext4 /dev/a rw
            40 28 0:39 / /e\u{301} rw - fuse.ward /v rw
            41 28 0:40 / /\u{e9} rw - fuse.ward /w rw
            """
        let table = MountTable(parsing: Array(text.utf8))
        #expect(table.covering("/e\u{301}/a")?.id == 40)
        #expect(table.covering("/\u{e9}/\u{301}")?.id == 41)
        #expect(table.entry(at: "/e\u{301}")?.id == 40)
    }
}
