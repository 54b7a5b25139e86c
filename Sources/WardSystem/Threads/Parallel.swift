import CWardLinux
import Glibc
import Synchronization

/// Runs loops on several threads, for turns that wait for the kernel or a daemon.
public enum Parallel {
    /// More threads than CPUs: turns spend more time waiting than computing.
    public static let threadCount = max(4, min(16, 2 * sysconf(Int32(_SC_NPROCESSORS_ONLN))))

    /// Calls `body` with 0 to `count` - 1, each once, in any order, and returns when all calls have
    /// returned.
    ///
    /// It uses this thread and up to `threads` - 1 more, called `name` (at most 15 bytes), each
    /// with at least `share` turns. If no thread can be started, this one does all turns. Calls
    /// `tick` on this thread between turns, with the number of the last turn.
    public static func forEach(
        _ count: Int, threads: Int, share: Int = 1, name: String, tick: (Int) -> Void = { _ in },
        _ body: @escaping @Sendable (Int) -> Void
    ) {
        let turns = Turns(count)
        var helpers: [SystemThread] = []
        for _ in 1..<max(1, min(threads, count / share)) {
            let helper = try? SystemThread(name) { while let turn = turns.take() { body(turn) } }
            guard let helper else { break }
            helpers.append(helper)
        }
        while let turn = turns.take() {
            body(turn)
            tick(turn)
        }
        for helper in helpers { helper.join() }
    }

    /// The results of `body` for 0 to `count` - 1, in order.
    public static func map<T: Sendable>(
        _ count: Int, threads: Int, share: Int = 1, name: String, tick: (Int) -> Void = { _ in },
        _ body: @escaping @Sendable (Int) -> T
    ) -> [T] {
        let slots = ParallelSlots<T>(count)
        forEach(count, threads: threads, share: share, name: name, tick: tick) {
            slots[$0] = body($0)
        }
        return (0..<count).map { slots[$0]! }
    }

    private final class Turns: Sendable {
        private let count: Int
        private let next = Atomic(0)

        init(_ count: Int) { self.count = count }

        func take() -> Int? {
            let turn = next.wrappingAdd(1, ordering: .relaxed).oldValue
            return turn < count ? turn : nil
        }
    }
}

/// Places that several threads fill, each its own; empty at first.
public final class ParallelSlots<Element>: @unchecked Sendable {
    // Sendable: two threads never touch one place at once.
    private let places: UnsafeMutableBufferPointer<Element?>
    public var count: Int { places.count }

    public init(_ count: Int) {
        places = .allocate(capacity: count)
        places.initialize(repeating: nil)
    }

    public convenience init(_ elements: [Element]) {
        self.init(elements.count)
        for (index, element) in elements.enumerated() { places[index] = element }
    }

    deinit {
        places.deinitialize()
        places.deallocate()
    }

    public subscript(index: Int) -> Element? {
        get { places[index] }
        set { places[index] = newValue }
    }
}
