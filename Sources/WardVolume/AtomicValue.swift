import Glibc
import Synchronization
import WardFormat

/// A value that threads read and replace as a whole, without a mutex. A thread that reads it sees
/// what the writer did before.
struct AtomicValue<Value: AtomicWord>: ~Copyable, Sendable {
    private let word: Atomic<UInt64>

    init(_ value: Value) { word = Atomic(value.word) }

    var value: Value {
        @inline(__always) get { Value(word: word.load(ordering: .acquiring)) }
        @inline(__always) nonmutating set { word.store(newValue.word, ordering: .releasing) }
    }
}

/// A value that fits into one word of memory.
protocol AtomicWord {
    var word: UInt64 { get }
    /// Makes the value of a word that `word` returned.
    init(word: UInt64)
}

/// A value whose word is never 0: 0 can stand for nil.
protocol NonzeroAtomicWord: AtomicWord {}

extension Bool: AtomicWord {
    var word: UInt64 { self ? 1 : 0 }
    init(word: UInt64) { self = word != 0 }
}

extension FixedWidthInteger {
    var word: UInt64 { UInt64(truncatingIfNeeded: self) }
    init(word: UInt64) { self.init(truncatingIfNeeded: word) }
}

extension Int: AtomicWord {}
extension UInt16: AtomicWord {}
extension UInt32: AtomicWord {}
extension UInt64: AtomicWord {}

extension Optional: AtomicWord where Wrapped: NonzeroAtomicWord {
    var word: UInt64 { self?.word ?? 0 }
    init(word: UInt64) { self = word == 0 ? nil : Wrapped(word: word) }
}

extension ProtectionClass: NonzeroAtomicWord {
    var word: UInt64 { UInt64(rawValue) }
    init(word: UInt64) { self.init(rawValue: UInt8(word))! }
}
