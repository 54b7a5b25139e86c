import Glibc
import Synchronization
import WardSystem

@testable import WardKeys

/// Files in memory that lose power.
///
/// Fault model: `sync` of a file makes its content durable, `sync` of its directory makes its name
/// durable. The power goes just before operation number `failingAt`; every later operation fails.
/// `Survival` says what survives of the rest. A disk may have written all of it, none of it, or
/// names without contents.
final class SimulatedKeyStorage: KeyStorage {
    enum Survival: CaseIterable, Sendable {
        case everything
        case onlyWhatWasSynced
        /// Names reached the disk before the data of files that were not synced: those files are
        /// zeros.
        case namesWithoutContents
    }

    struct File {
        var content: [UInt8]
        var durable: [UInt8]?
    }

    struct State {
        var files: [Int: File] = [:]
        var names: [String: Int] = [:]
        var durableNames: [String: Int] = [:]
        var nextFile = 1
        var operations = 0
        var failingAt: Int?
        var hasFailed: Bool { failingAt.map { operations >= $0 } ?? false }
    }

    private let state: Mutex<State>

    init(_ state: State = State(), failingAt: Int? = nil) {
        var state = state
        state.operations = 0
        state.failingAt = failingAt
        self.state = Mutex(state)
    }

    /// The files that a machine finds when the power is back.
    func afterPowerLoss(_ survival: Survival) -> State {
        state.withLock { now in
            var then = State()
            then.nextFile = now.nextFile
            then.names = survival == .onlyWhatWasSynced ? now.durableNames : now.names
            then.durableNames = then.names
            for file in then.names.values {
                let old = now.files[file]!
                let content =
                    survival == .everything
                    ? old.content : old.durable ?? old.content.map { _ in 0 }
                then.files[file] = File(content: content, durable: content)
            }
            return then
        }
    }

    /// The same with a random survival: a name that was not synced is the old or the new one. A
    /// file that was not synced is whole, is zeros, or is cut anywhere.
    func afterPowerLoss(scattered seed: UInt64) -> State {
        var number = seed
        func below(_ limit: Int) -> Int {
            number = number &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            return Int((number >> 33) % UInt64(limit))
        }
        return state.withLock { now in
            var then = State()
            then.nextFile = now.nextFile
            for name in Set(now.names.keys).union(now.durableNames.keys).sorted() {
                then.names[name] = below(2) == 0 ? now.names[name] : now.durableNames[name]
            }
            then.durableNames = then.names
            for file in Set(then.names.values).sorted() {
                let old = now.files[file]!
                var content = old.durable ?? old.content
                if old.durable != old.content {
                    switch below(3) {
                    case 0: content = old.content
                    case 1: content = old.durable ?? old.content.map { _ in 0 }
                    default: content = Array(old.content.prefix(below(old.content.count + 1)))
                    }
                }
                then.files[file] = File(content: content, durable: content)
            }
            return then
        }
    }

    var image: State { state.withLock { $0 } }
    var hasFailed: Bool { state.withLock { $0.hasFailed } }
    var operations: Int { state.withLock { $0.operations } }

    subscript(path: String) -> [UInt8]? {
        get { state.withLock { state in state.names[path].map { state.files[$0]!.content } } }
        set {
            state.withLock { state in
                guard let newValue else {
                    state.names[path] = nil
                    return
                }
                state.files[state.nextFile] = File(content: newValue, durable: newValue)
                state.names[path] = state.nextFile
                state.durableNames[path] = state.nextFile
                state.nextFile += 1
            }
        }
    }

    /// Performs one operation that changes something; fails from operation `failingAt` on.
    private func change<R>(_ body: (inout State) throws(Errno) -> R) throws(Errno) -> R {
        var result: Result<R, Errno>?
        state.withLock { state in
            guard !state.hasFailed else {
                result = .failure(.ioError)
                return
            }
            state.operations += 1
            do throws(Errno) {
                result = .success(try body(&state))
            } catch {
                result = .failure(error)
            }
        }
        return try result!.get()
    }

    func read(_ path: String, limit: Int) throws(Errno) -> SecretBytes {
        if hasFailed { throw .ioError }
        guard let content = self[path] else { throw .noSuchFileOrDirectory }
        var secret = try SecretBytes(zeroed: min(content.count, limit + 1))
        secret.withUnsafeMutableBytes { $0.copyBytes(from: content[..<$0.count]) }
        return secret
    }

    func write(_ path: String, _ bytes: UnsafeRawBufferPointer, isPublic: Bool) throws(Errno) {
        let content = [UInt8](bytes)
        try change { state in
            state.files[state.nextFile] = File(content: content, durable: nil)
            state.names[path] = state.nextFile
            state.nextFile += 1
        }
    }

    func sync(_ path: String) throws(Errno) {
        try change { state in
            if let file = state.names[path] {
                state.files[file]!.durable = state.files[file]!.content
            } else {
                let inside = { (name: String) in Paths.parent(of: name) == path }
                state.durableNames = state.durableNames.filter { !inside($0.key) }
                    .merging(state.names.filter { inside($0.key) }) { _, new in new }
            }
        }
    }

    func rename(_ path: String, to target: String) throws(Errno) {
        try change { (state) throws(Errno) in
            guard let file = state.names.removeValue(forKey: path) else {
                throw .noSuchFileOrDirectory
            }
            state.names[target] = file
        }
    }

    func remove(_ path: String) throws(Errno) {
        try change { state in state.names[path] = nil }
    }

    func openForWiping(_ path: String) throws(Errno) -> Int32? {
        if hasFailed { throw .ioError }
        return state.withLock { $0.names[path].map(Int32.init) }
    }

    func wipe(_ descriptor: Int32) throws(Errno) {
        try change { state in
            let zeros = state.files[Int(descriptor)]!.content.map { _ in UInt8(0) }
            state.files[Int(descriptor)] = File(content: zeros, durable: zeros)
        }
    }

    func close(_ descriptor: Int32) {}
    func lock(_ path: String) throws(Errno) -> Int32? { nil }
    func unlock(_ descriptor: Int32) {}
    func makeDirectory(_ path: String) throws(Errno) {}
}
