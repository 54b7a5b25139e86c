import CWardLinux
import Glibc
import WardSystem

/// A connection to the system bus, as far as the login manager's signals go (`ward_bus.h`). Of one thread.
struct SystemBus: ~Copyable {
    enum Signal {
        case sleep(begins: Bool)
        case shutdown(begins: Bool)
        /// The screen of the session with this object path was or is to be locked.
        case screenLocked(session: String)
        case other
    }

    private let handle: OpaquePointer

    /// Asks for the signals of sleep and shutdown, and with `sessions` those of locked screens. Throws `ENOENT` where there
    /// is no libsystemd or no bus.
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

    /// What poll(2) is to wait for.
    var pollRequest: pollfd {
        pollfd(
            fd: ward_bus_descriptor(handle),
            events: Int16(truncatingIfNeeded: max(0, ward_bus_events(handle))), revents: 0)
    }

    /// How long at most; -1: for ever.
    var timeoutMilliseconds: Int32 { ward_bus_timeout_milliseconds(handle) }

    /// The next message; nil where all were taken. Throws where the connection is lost.
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
        default: return .other
        }
    }

    private func path(of signal: ward_bus_signal) -> String {
        withUnsafeBytes(of: signal.path) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
    }

    /// Sleep and shutdown wait for the lock to be closed, for as long as the login manager allows (5 s by default).
    func delayLock(_ why: String) throws(Errno) -> OwnedDescriptor {
        OwnedDescriptor(
            adopting: try SystemBus.check(
                ward_bus_inhibit(handle, "sleep:shutdown", "ward", why)))
    }

    /// The user a session belongs to.
    func user(ofSession path: String) throws(Errno) -> UInt32 {
        var uid: UInt32 = 0
        try SystemBus.check(ward_bus_session_user(handle, path, &uid))
        return uid
    }
}
