import CWardLinux
import Glibc
import WardSystem

/// A connection to the system bus for the login manager's signals (`ward_bus.h`). Used by one
/// thread.
struct SystemBus: ~Copyable {
    enum Signal {
        case sleep(begins: Bool)
        case shutdown(begins: Bool)
        /// The screen of the session with this object path is locked, or will be.
        case screenLocked(session: String)
        /// A session began, or a session or a user ended.
        case sessionsChanged
        /// The login manager ended or started.
        case manager(isThere: Bool)
        case other
    }

    private let handle: OpaquePointer

    /// Subscribes to signals of sleep, shutdown, and the start and end of sessions; with `sessions`
    /// also of locked screens. Throws `ELIBACC` without libsystemd, `ENXIO` where the bus has no
    /// login manager, and the bus's own errors.
    init(sessions: Bool) throws(Errno) {
        var bus: OpaquePointer?
        try SystemBus.check(ward_bus_open(&bus, sessions ? 1 : 0))
        handle = bus!
    }

    deinit { ward_bus_close(handle) }

    /// sd-bus returns -errno.
    @discardableResult
    private static func check(_ result: Int32) throws(Errno) -> Int32 {
        if result < 0 { throw Errno(rawValue: -result) }
        return result
    }

    /// The descriptor and events for poll(2).
    var pollRequest: pollfd {
        pollfd(
            fd: ward_bus_descriptor(handle),
            events: Int16(truncatingIfNeeded: max(0, ward_bus_events(handle))), revents: 0)
    }

    /// The longest wait in milliseconds; -1 means no limit.
    var timeoutMilliseconds: Int32 { ward_bus_timeout_milliseconds(handle) }

    /// The next message; nil where none is waiting. Throws where the connection is lost.
    func next() throws(Errno) -> Signal? {
        var signal = ward_bus_signal()
        guard try SystemBus.check(ward_bus_next(handle, &signal)) > 0 else { return nil }
        let flag = signal.flag != 0
        switch UInt32(signal.kind) {
        case WARD_BUS_SLEEP.rawValue: return .sleep(begins: flag)
        case WARD_BUS_SHUTDOWN.rawValue: return .shutdown(begins: flag)
        case WARD_BUS_SESSION_LOCK.rawValue: return .screenLocked(session: path(of: signal))
        case WARD_BUS_LOCKED_HINT.rawValue where flag:
            return .screenLocked(session: path(of: signal))
        case WARD_BUS_SESSIONS.rawValue: return .sessionsChanged
        case WARD_BUS_MANAGER.rawValue: return .manager(isThere: flag)
        default: return .other
        }
    }

    private func path(of signal: ward_bus_signal) -> String {
        withUnsafeBytes(of: signal.path) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
    }

    /// The end that a delay lock postpones.
    enum Occasion: String {
        case sleep, shutdown
    }

    /// Takes a delay lock: the occasion waits until the descriptor is closed, or for the login
    /// manager's limit (5 s by default). Throws `EACCES` where it is refused.
    ///
    /// Each occasion needs a lock of its own, because the login manager asks polkit for one action
    /// per lock. A lock for both needs an action that only local sessions may have.
    func delayLock(_ occasion: Occasion, _ why: String) throws(Errno) -> OwnedDescriptor {
        OwnedDescriptor(
            adopting: try SystemBus.check(ward_bus_inhibit(handle, occasion.rawValue, "ward", why)))
    }

    /// The user of a session.
    func user(ofSession path: String) throws(Errno) -> UInt32 {
        var uid: UInt32 = 0
        try SystemBus.check(ward_bus_session_user(handle, path, &uid))
        return uid
    }

    /// Whether the user has a session that has not ended (org.freedesktop.login1(5): the property
    /// State of users).
    func isLoggedIn(_ uid: UInt32) throws(Errno) -> Bool {
        var state = [CChar](repeating: 0, count: 32)
        do throws(Errno) {
            try SystemBus.check(ward_bus_user_state(handle, uid, &state, state.count))
        } catch {
            // The user has no session.
            if error == .noSuchAddressOrDevice { return false }
            throw error
        }
        return ["active", "online", "opening"].contains(
            String(decoding: state.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self))
    }
}
