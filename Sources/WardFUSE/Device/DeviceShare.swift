import CWardLinux
import Glibc
import Synchronization
import WardSystem

/// The state that the workers of one connection share.
final class DeviceShare: Sendable {
    /// For blocking reads: the kernel wakes one sleeping worker for each request.
    let device: Int32
    /// For non-blocking reads: a clone of `device`. -1 where this user may not open `/dev/fuse` to
    /// make one. Then `device` itself is non-blocking, and one worker at a time polls it for all.
    let pollingDevice: Int32
    /// The number of workers that poll: a second one only takes time from the program that waits.
    let pollers = Atomic<Int>(0)
    /// Goes up with each demand to wipe request buffers.
    let wipeDemand = Atomic<UInt64>(0)
    let pollMutex = Mutex<Void>(())
    let sole: SoleWorker
    let rules: ServingRules
    let machine = ServingMachine.read()
    private let quickNanoseconds: UInt64

    /// `quickNanoseconds`: as in `ServingLimits`.
    init(
        device: Int32, pollingDevice: Int32, rules: ServingRules = .all,
        sole: SoleWorker = SoleWorker(),
        quickNanoseconds: UInt64 = ServingLimits.quickNanoseconds
    ) {
        self.sole = sole
        self.rules = rules
        self.quickNanoseconds = quickNanoseconds
        self.device = device
        self.pollingDevice = pollingDevice
    }

    /// Takes the descriptor of a mount, and makes one for non-blocking reads.
    convenience init(adopting device: Int32, rules: ServingRules) {
        if let clone = try? Syscall.open("/dev/fuse", O_RDWR | O_NONBLOCK) {
            var original = UInt32(bitPattern: device)
            if ward_ioctl_pointer(clone, FUSE_DEV_IOC_CLONE, &original) == 0 {
                self.init(device: device, pollingDevice: clone, rules: rules)
                return
            }
            Syscall.close(clone)
        }
        // This user may not open /dev/fuse: one non-blocking descriptor serves for both.
        _ = ward_fcntl_int(device, F_SETFL, ward_fcntl_int(device, F_GETFL, 0) | O_NONBLOCK)
        self.init(device: device, pollingDevice: -1, rules: rules)
    }

    deinit {
        Syscall.close(device)
        if pollingDevice >= 0 { Syscall.close(pollingDevice) }
    }

    /// The descriptor for non-blocking reads.
    @inline(__always)
    var quickDevice: Int32 { pollingDevice >= 0 ? pollingDevice : device }

    /// Whether workers may serve alone, and so yield: a program can run beside them.
    var maySpareWorkers: Bool { machine.processors > 1 }

    /// Returns the rules that a worker starts with. `isAside`: as in `DeviceTransport`.
    func policy(isAside: Bool) -> ServingPolicy {
        let mine =
            isAside ? rules.intersection(.gatherForgets) : rules.subtracting(.gatherForgets)
        return ServingPolicy(
            rules: mine, machine: machine, quickNanoseconds: quickNanoseconds)
    }
}
