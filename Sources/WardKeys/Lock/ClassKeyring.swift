import Synchronization
import WardCrypto
import WardFormat
import WardSystem

/// The reason why a file key could not be wrapped or unwrapped.
public enum KeyringError: Error, Equatable, Sendable {
    /// The class key is not in memory in this lock state.
    case unavailable
    /// The wrapped key does not open: it is damaged, or of another volume.
    case authenticationFailed
    /// No memory could be locked for the key.
    case outOfLockedMemory
}

/// A file key as it is stored in a header.
public struct WrappedKey: Equatable, Sendable {
    /// 40 bytes, for class B 72.
    public var bytes: [UInt8]
    /// The ID of the capsule whose secret is in it, `Capsule.noID` for none.
    public var capsuleID: [UInt8]

    init(_ bytes: [UInt8], capsuleID: [UInt8] = Capsule.noID) {
        self.bytes = bytes
        self.capsuleID = capsuleID
    }
}

/// The class keys that are in memory now. Every file key is wrapped and unwrapped here.
///
/// Concurrency: any thread. The mutex of `state` is held for one wrap (about a microsecond, for
/// class B a few hundred at most).
public final class ClassKeyring: Sendable {
    struct State: ~Copyable {
        var a: SecretBytes?
        /// The private half of the class B pair.
        var b: SecretBytes?
        var c: SecretBytes?
        var d: SecretBytes?
        var cx: SecretBytes?
        /// The key of seals, while class C's key is in memory.
        var seals: SecretBytes?
        var binding = ClassBBinding()
        var available: ProtectionClassSet = []
    }

    let state = Mutex(State())
    /// Whether the seal key is in memory. It follows `state.seals`.
    private let hasSeals = Atomic<Bool>(false)
    private let arrivals = Atomic<UInt64>(0)
    /// The public half of the class B pair, which wraps in every state.
    public let classBPublicKey: [UInt8]

    public init(classBPublicKey: [UInt8]) {
        precondition(classBPublicKey.count == 32)
        self.classBPublicKey = classBPublicKey
    }

    /// The classes whose files can be opened now.
    public var available: ProtectionClassSet { state.withLock { $0.available } }

    /// Takes over a class key (for B: the private half). Wipes and replaces the earlier one. Class
    /// C stays away where no memory can be locked for the seal key, which is derived from its key.
    public func install(_ key: consuming SecretBytes, for protectionClass: ProtectionClass) {
        precondition(key.count == 32)
        // A closure can't consume a captured value, so it goes through an optional.
        var handover: SecretBytes? = consume key
        state.withLock { state in
            if protectionClass == .completeUntilFirstUserAuthentication {
                return takeClassC(&handover, &state)
            }
            let key = handover.take()
            switch protectionClass {
            case .complete: state.a = key
            case .completeUnlessOpen: state.b = key
            case .completeUntilFirstUserAuthentication: break
            case .none: state.d = key
            case .completeWhenUserInactive: state.cx = key
            }
            state.available.insert(ProtectionClassSet(protectionClass))
        }
    }

    /// The part of `install` for class C.
    private func takeClassC(_ key: inout SecretBytes?, _ state: inout State) {
        let isNew = state.seals == nil
        forgetSeals(&state)
        state.c = key.take()
        state.seals = try? ClassSeal.key(from: state.c!)
        guard state.seals != nil else {
            state.c = nil
            state.available.subtract(.c)
            return
        }
        state.available.insert(.c)
        if isNew { arrivals.add(1, ordering: .relaxed) }
        hasSeals.store(true, ordering: .releasing)
    }

    private func forgetSeals(_ state: inout State) {
        state.seals = nil
        hasSeals.store(false, ordering: .releasing)
    }

    /// Moves every key to `other`, replacing the keys there.
    public func move(to other: ClassKeyring) {
        for protectionClass in available.classes {
            var key = take(protectionClass)
            if let key = key.take() { other.install(key, for: protectionClass) }
        }
    }

    private func take(_ protectionClass: ProtectionClass) -> SecretBytes? {
        state.withLock { state -> sending SecretBytes? in
            state.available.subtract(ProtectionClassSet(protectionClass))
            switch protectionClass {
            case .complete: return state.a.take()
            case .completeUnlessOpen: return state.b.take()
            case .completeUntilFirstUserAuthentication:
                forgetSeals(&state)
                return state.c.take()
            case .none: return state.d.take()
            case .completeWhenUserInactive: return state.cx.take()
            }
        }
    }

    /// Wipes the keys of these classes.
    public func evict(_ classes: ProtectionClassSet) {
        state.withLock { state in
            if classes.contains(.a) { state.a = nil }
            if classes.contains(.b) {
                state.b = nil
                state.binding.forgetOpened()
            }
            if classes.contains(.c) {
                state.c = nil
                forgetSeals(&state)
            }
            if classes.contains(.d) { state.d = nil }
            if classes.contains(.cx) { state.cx = nil }
            state.available.subtract(classes)
        }
    }

    /// Lends a class key (for B: the private half), for sealing a slot.
    public func withKey<R>(
        of protectionClass: ProtectionClass, _ body: (borrowing SecretBytes) -> sending R
    ) throws(KeyringError) -> R {
        let result: R? = state.withLock { state -> sending R? in
            switch protectionClass {
            case .complete: if state.a != nil { return body(state.a!) }
            case .completeUnlessOpen: if state.b != nil { return body(state.b!) }
            case .completeUntilFirstUserAuthentication: if state.c != nil { return body(state.c!) }
            case .none: if state.d != nil { return body(state.d!) }
            case .completeWhenUserInactive: if state.cx != nil { return body(state.cx!) }
            }
            return nil
        }
        guard let result else { throw .unavailable }
        return result
    }

    // MARK: Seals

    /// Whether seals can be made and judged: the first unlock has been.
    @inline(__always)
    public var hasSealKey: Bool { hasSeals.load(ordering: .acquiring) }

    /// The number of times that the seal key has come where there was none.
    public var sealKeyArrivals: UInt64 { arrivals.load(ordering: .relaxed) }

    /// Runs `body` with the seal key. Nil where it is not in memory.
    func withSealKey<R>(_ body: (borrowing SecretBytes) -> R) -> sending R? {
        state.withLock { state -> sending R? in
            if state.seals != nil { return body(state.seals!) }
            return nil
        }
    }

    /// Wraps a file key: RFC 3394 under the class key (40 bytes). For class B: ephemeral public key
    /// ‖ RFC 3394 under the one-pass Diffie-Hellman key (72 bytes); this needs no class key and
    /// works in every state. `format`: that of the header that gets the key. Class B's keys of
    /// format 2 need `bindClassB`.
    public func wrap(
        _ fileKey: borrowing SecretBytes, for protectionClass: ProtectionClass,
        format: VolumeFormat = .version2
    ) throws(KeyringError) -> WrappedKey {
        if protectionClass == .completeUnlessOpen {
            return try wrapForB(fileKey, format: format)
        }
        return WrappedKey(try withKey(of: protectionClass) { AESKeyWrap.wrap(fileKey, using: $0) })
    }

    /// Unwraps a key that `wrap` made. `capsule`: the one that the key's header names, if it names
    /// one. `format`: that of the header.
    public func unwrap(
        _ wrapped: UnsafeRawBufferPointer, for protectionClass: ProtectionClass,
        capsule: Capsule? = nil, format: VolumeFormat = .version2
    ) throws(KeyringError) -> SecretBytes {
        if protectionClass == .completeUnlessOpen {
            return try unwrapForB(wrapped, capsule, format: format)
        }
        guard wrapped.count == 40 else { throw .authenticationFailed }
        var fileKey: SecretBytes?
        var failure: CryptoError?
        try withKey(of: protectionClass) { key in
            do throws(CryptoError) {
                fileKey = try AESKeyWrap.unwrap(wrapped, using: key)
            } catch {
                failure = error
            }
        }
        if let fileKey = fileKey.take() { return fileKey }
        throw failure == .outOfLockedMemory ? .outOfLockedMemory : .authenticationFailed
    }
}
