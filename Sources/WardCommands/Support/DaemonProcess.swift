import CWardLinux
import Glibc
import WardDaemon
import WardSystem
import WardVolume

/// The process that holds a volume's lock, by a descriptor: a number may become another process's.
///
/// Concurrency: one thread.
final class DaemonProcess {
    let pid: Int32
    /// pidfd_open(2).
    private let descriptor: OwnedDescriptor

    /// Nil where no process of `owner` holds the lock. The volume's name in the mount table comes
    /// from the user who mounted, and may be the name of any file.
    init?(holding volume: String, ownedBy owner: UInt32) {
        guard let holder = VolumeHold.holder(of: volume) else { return nil }
        let number = ward_pidfd_open(holder)
        guard number >= 0 else { return nil }
        descriptor = OwnedDescriptor(adopting: number)
        pid = holder
        // Asked again: the descriptor is of this process, or of one that took its number before.
        guard VolumeHold.holder(of: volume) == holder,
            ProcessInformation.read(Int(holder))?.uid == Int(owner)
        else { return nil }
    }

    /// Sends a signal. False where the process has ended, or may not be signalled.
    @discardableResult
    func send(_ signal: Int32) -> Bool { ward_pidfd_send_signal(descriptor.rawValue, signal) == 0 }

    /// Whether every thread of it ends within `limit`: only then its memory is gone.
    func ends(within limit: Duration) -> Bool {
        var waiting = pollfd(fd: descriptor.rawValue, events: Int16(POLLIN), revents: 0)
        let ready = withUnsafeMutablePointer(to: &waiting) {
            try? Syscall.poll(
                UnsafeMutableBufferPointer(start: $0, count: 1),
                timeoutMilliseconds: Int32(limit / .milliseconds(1)))
        }
        return ready == 1
    }
}
