import Synchronization
import WardSystem

/// Removals and moves of names by programs that are under way. Between the store's name and what
/// nodes know of it there is a moment, longer on a machine with much to do: who met it, waits for
/// its end or looks again.
final class NameChanges: Sendable {
    private let begun = Atomic<UInt64>(0)
    private let ended = Atomic<UInt64>(0)

    func begin() { begun.wrappingAdd(1, ordering: .sequentiallyConsistent) }
    func end() { ended.wrappingAdd(1, ordering: .sequentiallyConsistent) }

    var areUnderWay: Bool {
        ended.load(ordering: .sequentiallyConsistent)
            != begun.load(ordering: .sequentiallyConsistent)
    }

    /// For `isQuiet(since:)`; nil while some are under way.
    var quietState: UInt64? {
        let state = begun.load(ordering: .sequentiallyConsistent)
        return ended.load(ordering: .sequentiallyConsistent) == state ? state : nil
    }

    /// None was under way then, and none has begun since.
    func isQuiet(since state: UInt64?) -> Bool {
        state == begun.load(ordering: .sequentiallyConsistent)
    }
}

/// A descriptor of a file or directory that has no name any more, for whoever found it by the one
/// it had.
final class KeptDescriptor: Sendable {
    private let descriptor: StoreDescriptor
    var rawValue: Int32 { descriptor.rawValue }
    /// In which it had that name.
    let directory: DirectoryState

    init(_ descriptor: StoreDescriptor, in directory: DirectoryState) {
        self.descriptor = descriptor
        self.directory = directory
    }
}

/// Files and directories that got another name while somebody walks through all of them, and may so
/// miss them.
final class MovedNodes: Sendable {
    /// Beyond these the walk has to begin anew.
    private static let mostNodes = 100_000

    private struct State {
        var isWatched = false
        var nodes: [ObjectIdentifier: Node] = [:]
        var hasMissed = false
    }

    private let state = Mutex(State())
    /// So that nobody takes the mutex while nobody walks.
    private let isWatched = Atomic(false)
    private let isWaiting = Atomic(false)
    private let moves = Atomic<UInt64>(0)

    /// How many moves there were.
    var count: UInt64 { moves.load(ordering: .sequentiallyConsistent) }

    /// Whether `take` would give some, or say that some were missed.
    var areWaiting: Bool { isWaiting.load(ordering: .relaxed) }

    /// After the store has done it; nil where no node knows it. `retain` is called where it is
    /// kept. `isCounted`: false for the one who asks for `count`.
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

    /// It has no name any more. `release` is called where it was kept.
    func drop(_ node: Node, release: (Node) -> Void) {
        guard isWatched.load(ordering: .sequentiallyConsistent) else { return }
        let kept = state.withLock { $0.nodes.removeValue(forKey: ObjectIdentifier(node)) }
        if let kept { release(kept) }
    }

    /// Before the walk lists anything.
    func watch() {
        state.withLock { $0.isWatched = true }
        isWatched.store(true, ordering: .sequentiallyConsistent)
    }

    /// Those that were noted since, each retained once; nil where some could not be.
    func take() -> [Node]? {
        state.withLock { state in
            isWaiting.store(false, ordering: .relaxed)
            if state.hasMissed { return nil }
            defer { state.nodes = [:] }
            return Array(state.nodes.values)
        }
    }

    /// The rest, each retained once.
    func unwatch() -> [Node] {
        isWatched.store(false, ordering: .sequentiallyConsistent)
        return state.withLock { state in
            defer { state = State() }
            return Array(state.nodes.values)
        }
    }
}
