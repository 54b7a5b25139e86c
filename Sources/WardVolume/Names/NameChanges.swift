import Synchronization
import WardSystem

/// Counts the removals and moves of names that are under way. Such a change reaches the backing
/// store first and the nodes a little later. A thread that met a name in between waits for the end
/// of the change, or looks again.
final class NameChanges: Sendable {
    private let begun = Atomic<UInt64>(0)
    private let ended = Atomic<UInt64>(0)

    func begin() { begun.wrappingAdd(1, ordering: .sequentiallyConsistent) }
    func end() { ended.wrappingAdd(1, ordering: .sequentiallyConsistent) }

    var areUnderWay: Bool {
        ended.load(ordering: .sequentiallyConsistent)
            != begun.load(ordering: .sequentiallyConsistent)
    }

    /// The state for `isQuiet(since:)`; nil while a change is under way.
    var quietState: UInt64? {
        let state = begun.load(ordering: .sequentiallyConsistent)
        return ended.load(ordering: .sequentiallyConsistent) == state ? state : nil
    }

    /// Whether no change was under way at `state`, and none has begun since.
    func isQuiet(since state: UInt64?) -> Bool {
        state == begun.load(ordering: .sequentiallyConsistent)
    }
}

/// The descriptor of a file or directory without a name, for programs that found it by its last
/// name.
final class KeptDescriptor: Sendable {
    private let descriptor: StoreDescriptor
    var rawValue: Int32 { descriptor.rawValue }
    /// The directory of the last name.
    let directory: DirectoryState

    init(_ descriptor: StoreDescriptor, in directory: DirectoryState) {
        self.descriptor = descriptor
        self.directory = directory
    }
}

/// Files and directories that got another name during a walk through the volume. The walk may have
/// missed them.
final class MovedNodes: Sendable {
    /// With more moved nodes the walk has to begin anew.
    private static let mostNodes = 100_000

    private struct State {
        var isWatched = false
        var nodes: [ObjectIdentifier: Node] = [:]
        var hasMissed = false
    }

    private let state = Mutex(State())
    /// Spares `note` the mutex while no walk is under way.
    private let isWatched = Atomic(false)
    private let isWaiting = Atomic(false)
    private let moves = Atomic<UInt64>(0)

    /// The number of moves so far.
    var count: UInt64 { moves.load(ordering: .sequentiallyConsistent) }

    /// Whether `take` would return nodes, or nil.
    var areWaiting: Bool { isWaiting.load(ordering: .relaxed) }

    /// Notes a move, after the backing store has done it. `node`: nil where no node knows the file.
    /// Calls `retain` on a node that it keeps. `isCounted`: false for the check, which watches
    /// `count` for moves of others.
    func note(_ node: Node?, isCounted: Bool = true, retain: (Node) -> Void) {
        if isCounted { moves.add(1, ordering: .sequentiallyConsistent) }
        guard isWatched.load(ordering: .sequentiallyConsistent) else { return }
        state.withLock { state in
            guard state.isWatched else { return }
            isWaiting.store(true, ordering: .relaxed)
            guard let node, state.nodes.count < MovedNodes.mostNodes else {
                state.hasMissed = true
                return
            }
            if state.nodes.updateValue(node, forKey: ObjectIdentifier(node)) == nil {
                retain(node)
            }
        }
    }

    /// Drops a node that has lost its last name. Calls `release` on a node that was kept.
    func drop(_ node: Node, release: (Node) -> Void) {
        guard isWatched.load(ordering: .sequentiallyConsistent) else { return }
        let kept = state.withLock { $0.nodes.removeValue(forKey: ObjectIdentifier(node)) }
        if let kept { release(kept) }
    }

    /// Begins noting moves. Called before the walk lists anything.
    func watch() {
        state.withLock { $0.isWatched = true }
        isWatched.store(true, ordering: .sequentiallyConsistent)
    }

    /// Returns the nodes that moved since, each retained once; nil where some could not be noted.
    func take() -> [Node]? {
        state.withLock { state in
            isWaiting.store(false, ordering: .relaxed)
            if state.hasMissed { return nil }
            defer { state.nodes = [:] }
            return Array(state.nodes.values)
        }
    }

    /// Ends noting. Returns the remaining nodes, each retained once.
    func unwatch() -> [Node] {
        isWatched.store(false, ordering: .sequentiallyConsistent)
        return state.withLock { state in
            defer { state = State() }
            return Array(state.nodes.values)
        }
    }
}
