import Glibc
import Synchronization
import WardControl
import WardSystem
import WardVolume

/// The locks requested through the mount. They have numbers and end in that order.
///
/// Concurrency: any thread; guarded by its mutex.
final class MountLocks: Sendable {
    /// The most locks of one kind under way at once, so that a program that asks for endless locks
    /// fills no queue. Locks without a grace period are counted apart: no other locks can keep them
    /// out.
    private static let maximumUnderWay = 64

    private struct State {
        var asked: UInt64 = 0
        var ended: UInt64 = 0
        /// The locks under way: with a grace period, and without.
        var underWay = (0, 0)
        /// The state's name when the last lock ended.
        var state = ""
    }

    private let state = Mutex(State())

    /// Returns the next lock's number; `post` begins the lock, in the order of numbers. Nil where
    /// too many are under way.
    func begin(now: Bool, _ post: (UInt64) -> Void) -> UInt64? {
        state.withLock { state in
            let count = now ? state.underWay.1 : state.underWay.0
            if count >= MountLocks.maximumUnderWay { return nil }
            if now { state.underWay.1 += 1 } else { state.underWay.0 += 1 }
            state.asked += 1
            post(state.asked)
            return state.asked
        }
    }

    func end(_ number: UInt64, now: Bool, _ name: String) {
        state.withLock { state in
            if now { state.underWay.1 -= 1 } else { state.underWay.0 -= 1 }
            guard number > state.ended else { return }
            state.ended = number
            state.state = name
        }
    }

    /// The number of the last lock that ended, and the state then.
    func last(else name: String) -> String {
        state.withLock { "\($0.ended) \($0.state.isEmpty ? name : $0.state)" }
    }
}

/// The mount's answers about itself, `MountAttribute`.
extension ControlService {
    /// The longest answer, bytes: XATTR_SIZE_MAX, xattr(7).
    private static let maximumAnswerBytes = 65536

    /// Called on workers, so it must not wait. `endpoints` is where the daemon listens now.
    /// `isRoot` says that the mount's root was asked. A program that sees only a part of the mount
    /// (a sandbox) can't lock, and gets the lock state alone.
    func mountAttribute(
        _ name: String, _ caller: Caller, isRoot: Bool, _ endpoints: ControlEndpoints?
    ) throws(Errno) -> [UInt8] {
        guard caller.uid == 0 || caller.uid == geteuid() else { throw .permissionDenied }
        switch name {
        case MountAttribute.control:
            guard let endpoints else { throw .noData }
            return endpoints.json.bytes
        case MountAttribute.status:
            // A program that is confined to a part of the volume may ask, too.
            var status = isRoot ? currentStatus() : currentStatus().narrowed
            status.lostPaths = []
            status.hosts = []
            let bytes = status.json.bytes
            guard bytes.count <= ControlService.maximumAnswerBytes else { throw .outOfRange }
            return bytes
        case _ where !isRoot && name.hasPrefix(MountAttribute.lock): throw .noLocks
        case MountAttribute.lock: return try beginLock(now: false, endingHosts: false)
        case MountAttribute.lockNow: return try beginLock(now: true, endingHosts: false)
        case MountAttribute.lockEndHosts: return try beginLock(now: false, endingHosts: true)
        case MountAttribute.lockNowEndHosts: return try beginLock(now: true, endingHosts: true)
        case MountAttribute.locked: return Array(mountLocks.last(else: keeper.stateName).utf8)
        default: throw .noData
        }
    }

    /// Throws EAGAIN where too many locks are under way.
    private func beginLock(now: Bool, endingHosts: Bool) throws(Errno) -> [UInt8] {
        let number = mountLocks.begin(now: now) { number in
            lock(now: now, endingHosts: endingHosts) { [mountLocks] state in
                mountLocks.end(number, now: now, state)
            }
        }
        guard let number else { throw .resourceTemporarilyUnavailable }
        return Array("\(number)".utf8)
    }
}
