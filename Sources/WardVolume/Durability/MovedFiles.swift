import Synchronization

/// Files that moved to another directory while their headers name the old one.
///
/// Concurrency: any thread; a mutex guards the nodes.
final class MovedFiles: Sendable {
    /// Further files keep the attribute with their places, and with it the old place.
    static let mostFiles = 4096
    private let nodes = Mutex<[ObjectIdentifier: Node]>([:])

    /// Notes a file. Calls `retain` on a node that is kept.
    func note(_ node: Node, retain: (Node) -> Void) {
        nodes.withLock { nodes in
            guard nodes.count < MovedFiles.mostFiles,
                nodes.updateValue(node, forKey: ObjectIdentifier(node)) == nil
            else { return }
            retain(node)
        }
    }

    /// Forgets a file that has lost its last name. Calls `release` on a node that was kept.
    func drop(_ node: Node, release: (Node) -> Void) {
        let kept = nodes.withLock { $0.removeValue(forKey: ObjectIdentifier(node)) }
        if let kept { release(kept) }
    }

    var areNone: Bool { nodes.withLock { $0.isEmpty } }

    /// Returns the noted files, each with a look-up, and forgets them.
    func take() -> [Node] {
        nodes.withLock { nodes in
            defer { nodes = [:] }
            return Array(nodes.values)
        }
    }
}
