import CWardLinux
import Glibc
import Synchronization

/// Loops whose turns wait for the kernel or a daemon, on several threads.
public enum Parallel {
    /// Turns spend more time waiting than computing: more threads than processors.
    public static let threadCount = max(4, min(16, 2 * sysconf(Int32(_SC_NPROCESSORS_ONLN))))

    /// Calls `body` with 0 to `count` - 1, each once, in any order, on this thread and on up to
    /// `threads` - 1 more, called `name` (at most 15 bytes), each with `share` turns at least;
    /// returns when all are done. Without threads to be had this one does it all. `tick`: called on
    /// this thread between turns, with how many were begun.
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

    /// What `body` gives for 0 to `count` - 1, in order.
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
    // Sendable: no place is touched by two threads at once.
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
