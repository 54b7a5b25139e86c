import CWardLinux
import Glibc
import Synchronization
import WardSystem

/// Loops whose turns wait for the daemon, on several threads.
enum Parallel {
    /// Turns spend more time waiting than computing: more threads than processors.
    static let threadCount = max(4, min(16, 2 * sysconf(Int32(_SC_NPROCESSORS_ONLN))))
    /// Fewer turns than this are not worth a thread.
    private static let smallestShare = 16

    /// What `body` gives for 0 to `count` - 1, in order. `tick` is called on this thread between turns, with how many were
    /// begun.
    static func map<T: Sendable>(
        _ count: Int, tick: (Int) -> Void, _ body: @escaping @Sendable (Int) -> T
    ) -> [T] {
        let slots = Slots<T>(count)
        let next = Counter()
        let helpers = min(threadCount, count / smallestShare) - 1
        var threads: [SystemThread] = []
        for _ in 0..<max(0, helpers) {
            // Without a thread to be had this one does it all.
            guard
                let thread = try? SystemThread(
                    "ward-audit",
                    {
                        while let turn = next.take(count) { slots.set(turn, body(turn)) }
                    })
            else { break }
            threads.append(thread)
        }
        while let turn = next.take(count) {
            slots.set(turn, body(turn))
            tick(turn)
        }
        for thread in threads { thread.join() }
        return slots.values
    }

    private final class Counter: Sendable {
        private let value = Atomic(0)

        func take(_ count: Int) -> Int? {
            let turn = value.wrappingAdd(1, ordering: .relaxed).oldValue
            return turn < count ? turn : nil
        }
    }

    /// One place for each turn.
    private final class Slots<T: Sendable>: @unchecked Sendable {
        // Sendable: each place is written by one thread, and read when all were joined.
        private let places: UnsafeMutableBufferPointer<T?>

        init(_ count: Int) {
            places = .allocate(capacity: count)
            places.initialize(repeating: nil)
        }

        deinit {
            places.deinitialize()
            places.deallocate()
        }

        func set(_ index: Int, _ value: T) { places[index] = value }

        var values: [T] { places.map { $0! } }
    }
}
