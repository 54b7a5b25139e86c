import Glibc
import Synchronization
import WardControl
import WardFormat
import WardKeys
import WardSystem
import WardVolume

/// `Status` and `Monitor`.
///
/// Concurrency: any thread, also the volume's workers: nothing here waits.
final class StatusHandler: Sendable {
    private let options: MountOptions
    private let placement: Placement
    private let store: KeybagStore
    private let volume: Volume
    private let keeper: LockKeeper
    private let connections: HostConnections
    private let time: any TimeSource
    private let hub: EventHub
    private let erasing: EraseHandler
    private let kernelCheck: KernelCheck
    /// Adds the numbers of the kernel's requests.
    private let describeConnection: @Sendable (inout VolumeStatus) -> Void
    /// The process that locks the volume by itself, at sleep and similar events.
    private let sessionWatch = Mutex<SessionWatchProcess?>(nil)

    init(
        _ mount: MountParts, erasing: EraseHandler,
        describeConnection: @escaping @Sendable (inout VolumeStatus) -> Void
    ) {
        options = mount.options
        placement = mount.placement
        store = mount.store
        volume = mount.volume
        keeper = mount.keeper
        connections = mount.connections
        time = mount.time
        hub = mount.hub
        kernelCheck = mount.kernelCheck
        self.erasing = erasing
        self.describeConnection = describeConnection
    }

    /// Lets `Status` report the events that lock the volume by themselves.
    func watch(_ process: SessionWatchProcess) { sessionWatch.withLock { $0 = process } }

    func takeTriggers(_ call: ControlCall) {
        let triggers = call.parameters["triggers"]?.arrayValue ?? []
        sessionWatch.withLock { $0 }?.take(triggers.compactMap(LockTrigger.init(json:)))
        call.reply()
    }

    /// The answer of `Status` now.
    func current() -> VolumeStatus { status(hub.counts) }

    /// `narrowed` is for a program in a sandbox.
    func tell(_ call: ControlCall, narrowed: Bool = false) {
        let status = current()
        call.reply(.object([("status", (narrowed ? status.narrowed : status).json)]))
    }

    /// `narrowed` is for a program in a sandbox: it gets only the lock state, from now on.
    func monitor(_ call: ControlCall, narrowed: Bool = false) {
        let parameters = call.parameters
        var request = EventHub.Request()
        request.last = parameters["last"]?.intValue ?? 0
        if narrowed, request.last != 0 { return call.failInvalidParameter("last") }
        request.isNarrowed = narrowed
        request.follow = parameters["follow"]?.boolValue ?? true
        request.signals = parameters["signals"]?.boolValue ?? false
        request.wantsStatus = parameters["status"]?.boolValue ?? false
        call.withProtectionClass { wanted in
            request.protectionClass = wanted?.letter
            hub.subscribe(call, request) { counts in
                let status = status(counts)
                return (narrowed ? status.narrowed : status).json
            }
        }
    }

    private func status(_ counts: EventJournal.Counts) -> VolumeStatus {
        let keeping = keeper.status
        let machine = keeping.machine
        let available = volume.available
        let openFiles = volume.openFileCounts()
        var status = VolumeStatus(
            uuid: store.parameters.uuidString, volume: placement.volumePath,
            mountpoint: placement.mountPoint, state: machine.state.rawName,
            since: keeping.since, passcodeSet: store.hasPasscode,
            graceSeconds: store.gracePeriod(asked: options.lock.graceSeconds).inSeconds,
            graceRemainingSeconds: machine.graceRemaining(now: time.now)?.inSeconds,
            classes: ProtectionClass.allCases.map {
                ClassStatus(
                    letter: $0.letter, name: $0.name, available: available.contains($0),
                    openFiles: openFiles[$0] ?? 0)
            },
            pid: Int(getpid()), version: WardVersion.current, readOnly: options.readOnly,
            manualClock: options.manualClock)
        status.protectedDataAvailable = machine.isProtectedDataAvailable
        status.firstUnlockHappened = machine.firstUnlockHappened
        status.userInactiveRemainingSeconds = machine.userInactiveDeadline.map {
            max(.zero, $0 - time.now).inSeconds
        }
        if store.hasPasscode {
            status.triesLeft = store.attempts.triesLeft
            if case .tryLater(let wait) = store.verdict { status.retrySeconds = wait.inSeconds }
            status.eraseAfterTries = store.policy.erasesAfterTenWrongPasscodes
        }
        status.policyForged = store.isPolicyForged
        describeRecovery(in: &status, advanced: (time as? ManualTime)?.advanced ?? .zero)
        status.unsyncedBytes = volume.unsyncedBytes
        status.pendingStoreBytes = volume.pendingStoreBytes
        status.lost = counts.lost
        status.lostPaths = counts.lostPaths
        status.integrityFailures = counts.integrityFailures
        status.denied = counts.denied
        status.hosts = connections.all.map(\.name)
        status.locksAt = sessionWatch.withLock { $0?.triggers }
        status.eraseInSeconds = erasing.timeLeft?.inSeconds
        let standing = kernelCheck.standing
        status.kernelCheck = standing.word
        status.kernelCheckWhy = standing.why
        let format = volume.standing
        status.format = Int(format.format.rawValue)
        status.isUpgrading = format.isUpgrading
        describeConnection(&status)
        status.sequence = counts.sequence
        return status
    }

    /// `advanced` is how far a manual clock was moved; it is added to the wall clock.
    private func describeRecovery(in status: inout VolumeStatus, advanced: Duration) {
        let history = store.recovery
        status.recoveryKit =
            history.standing(now: SystemClock.sinceEpoch() + advanced).rawValue
        status.recoveryKitMade = history.made.map { Timestamp.text($0) }
        status.recoveryKitVerified = history.verified.map { Timestamp.text($0) }
    }
}
