import Synchronization
import WardFormat

/// Says whether content of a class may be touched now. Every content operation passes the gate.
///
/// A thread enters with its `WorkerContext`'s content lock held and leaves by releasing it. A
/// thread that changes the gate then takes each context's lock once (`Volume.drain`). After that no
/// request that saw the old state is under way.
final class ClassGate: Sendable {
    enum State: UInt8 {
        /// Everything passes.
        case open = 0
        /// Locked, and the kernel is writing mapped pages back: only these writes pass.
        case closing = 1
        /// Nothing passes.
        case closed = 2
        /// Class B while locked: files whose key is in memory and new files pass. A file whose key
        /// would have to be unwrapped does not.
        case openFilesOnly = 3
    }

    /// One byte per class, by raw value.
    private let states = Atomic<UInt64>(0)

    /// All classes outside of `open` begin closed, class B with open files only.
    init(open: ProtectionClassSet) {
        for protectionClass in ProtectionClass.allCases {
            set(
                open.contains(protectionClass)
                    ? .open : protectionClass == .completeUnlessOpen ? .openFilesOnly : .closed,
                for: protectionClass)
        }
    }

    @inline(__always)
    func state(of protectionClass: ProtectionClass) -> State {
        let shift = UInt64(protectionClass.rawValue) &* 8
        return State(
            rawValue: UInt8(
                truncatingIfNeeded: states.load(ordering: .sequentiallyConsistent) &>> shift))!
    }

    /// Whether everything passes, for every class.
    @inline(__always)
    var isOpenForAll: Bool { states.load(ordering: .acquiring) == 0 }

    /// The classes for which everything passes.
    var open: ProtectionClassSet {
        ProtectionClass.allCases.reduce(into: []) { open, protectionClass in
            if state(of: protectionClass) == .open { open.insert(.init(protectionClass)) }
        }
    }

    func set(_ state: State, for protectionClass: ProtectionClass) {
        let shift = UInt64(protectionClass.rawValue) * 8
        while true {
            let old = states.load(ordering: .relaxed)
            let new = old & ~(0xFF << shift) | UInt64(state.rawValue) << shift
            if states.compareExchange(
                expected: old, desired: new, ordering: .sequentiallyConsistent
            ).exchanged {
                return
            }
        }
    }
}
