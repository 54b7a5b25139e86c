import Glibc
import Testing

@testable import WardVolume

/// The names of a node, as a value.
@Suite struct NodeLinksTests {
    private let home = Node(inode: 2, type: S_IFDIR, generation: 1)
    private let other = Node(inode: 3, type: S_IFDIR, generation: 1)

    private func names(_ links: NodeLinks) -> [String] {
        links.all.map { link in
            "\(link.parent.inode)/"
                + String(decoding: link.name.dropLast().map(UInt8.init), as: UTF8.self)
        }
    }

    @Test("A file has each of its names once, in the order in which they were found")
    func several() {
        var links = NodeLinks()
        #expect(links.first == nil && links.all.isEmpty)
        for _ in 0..<2 {
            links.add(home, "a", isOnlyOne: false)
            links.add(home, "b", isOnlyOne: false)
            links.add(other, "a", isOnlyOne: false)
        }
        #expect(names(links) == ["2/a", "2/b", "3/a"])
        links.addFirst(other, "c")
        #expect(names(links) == ["2/a", "2/b", "3/a"])
        links.remove(home, "b")
        links.remove(home, "none")
        #expect(names(links) == ["2/a", "3/a"])
        links.remove(home, "a")
        #expect(names(links) == ["3/a"])
        links.remove(other, "a")
        #expect(links.first == nil)
        links.addFirst(other, "c")
        #expect(names(links) == ["3/c"])
    }

    @Test("A directory has one name: the one that was found last")
    func directory() {
        var links = NodeLinks()
        links.add(home, "a", isOnlyOne: true)
        links.add(other, "b", isOnlyOne: true)
        #expect(names(links) == ["3/b"])
    }

    @Test("A wrong name is forgotten only where there is another one")
    func wrong() {
        var links = NodeLinks()
        links.add(home, "a", isOnlyOne: false)
        links.forget(links.first!)
        #expect(names(links) == ["2/a"])
        links.add(home, "b", isOnlyOne: false)
        links.forget(NodeLink(parent: home, "b"))
        #expect(names(links) == ["2/a", "2/b"], "only the first one is what a walk follows")
        links.forget(NodeLink(parent: home, "a"))
        #expect(names(links) == ["2/b"])
    }
}
