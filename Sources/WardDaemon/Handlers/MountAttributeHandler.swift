import Glibc
import WardControl
import WardSystem
import WardVolume

/// The mount's answers about itself, `MountAttribute`.
///
/// Concurrency: the volume's workers, so nothing here waits.
final class MountAttributeHandler: Sendable {
    /// The longest answer, bytes: XATTR_SIZE_MAX, xattr(7).
    private static let maximumAnswerBytes = 65536

    private let status: StatusHandler
    private let locks: LockHandler
    private let keeper: LockKeeper
    private let mountLocks = MountLocks()

    init(status: StatusHandler, locks: LockHandler, keeper: LockKeeper) {
        self.status = status
        self.locks = locks
        self.keeper = keeper
    }

    /// Called on workers, so it must not wait. `endpoints` is where the daemon listens now.
    /// `isRoot` says that the mount's root was asked. A program that sees only a part of the mount
    /// (a sandbox) can't lock, and gets the lock state alone.
    func answer(
        _ name: String, _ caller: Caller, isRoot: Bool, _ endpoints: ControlEndpoints?
    ) throws(Errno) -> [UInt8] {
        guard caller.uid == 0 || caller.uid == geteuid() else { throw .permissionDenied }
        switch name {
        case MountAttribute.control:
            guard let endpoints else { throw .noData }
            return endpoints.json.bytes
        case MountAttribute.status:
            // A program that is confined to a part of the volume may ask, too.
            var answer = isRoot ? status.current() : status.current().narrowed
            answer.lostPaths = []
            answer.hosts = []
            let bytes = answer.json.bytes
            guard bytes.count <= MountAttributeHandler.maximumAnswerBytes else { throw .outOfRange }
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
            locks.lock(now: now, endingHosts: endingHosts) { [mountLocks] state in
                mountLocks.end(number, now: now, state)
            }
        }
        guard let number else { throw .resourceTemporarilyUnavailable }
        return Array("\(number)".utf8)
    }
}
