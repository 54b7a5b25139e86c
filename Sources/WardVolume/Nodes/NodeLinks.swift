import Glibc

/// One name of a node: the stored name in a directory.
package struct NodeLink {
    /// The directory of the name.
    package var parent: Node
    /// Stored (encrypted) name, zero-terminated.
    package var name: [CChar]
}

extension NodeLink {
    init(parent: Node, _ name: UnsafePointer<CChar>) {
        self.init(
            parent: parent, name: [CChar](UnsafeBufferPointer(start: name, count: strlen(name) + 1))
        )
    }
}

/// The names by which a node can be reached.
struct NodeLinks {
    /// A name; nil where all names were removed.
    private(set) var first: NodeLink?
    private var more: [NodeLink] = []
    /// Names that were forgotten, and that the kernel may still know.
    var forgotten: [NodeLink] = []

    var all: [NodeLink] { (first.map { [$0] } ?? []) + more }

    /// Adds a name that is not known yet. `isOnlyOne`: a directory has one name, so another program
    /// moved it in the backing store.
    mutating func add(_ parent: Node, _ name: UnsafePointer<CChar>, isOnlyOne: Bool) {
        if let first, first.isSame(parent, name) { return }
        if first == nil || isOnlyOne {
            first = NodeLink(parent: parent, name)
            return
        }
        if more.contains(where: { $0.isSame(parent, name) }) { return }
        more.append(NodeLink(parent: parent, name))
    }

    /// Adds a name unless there is one.
    mutating func addFirst(_ parent: Node, _ name: UnsafePointer<CChar>) {
        if first == nil { first = NodeLink(parent: parent, name) }
    }

    /// Forgets the first name, if it is this one and there is another one. True if it did.
    @discardableResult
    mutating func forget(_ link: NodeLink) -> Bool {
        guard !more.isEmpty, let first, first.parent === link.parent, first.name == link.name
        else { return false }
        self.first = more.removeFirst()
        return true
    }

    mutating func remove(_ parent: Node, _ name: UnsafePointer<CChar>) {
        if let first, first.isSame(parent, name) {
            self.first = more.popLast()
        } else {
            more.removeAll { $0.isSame(parent, name) }
        }
    }
}

extension NodeLink {
    fileprivate func isSame(_ parent: Node, _ name: UnsafePointer<CChar>) -> Bool {
        self.parent === parent
            && self.name.withUnsafeBufferPointer { strcmp($0.baseAddress!, name) == 0 }
    }
}
