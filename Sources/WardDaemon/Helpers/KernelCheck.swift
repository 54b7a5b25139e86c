import CWardLinux
import Glibc
import Synchronization
import WardControl
import WardFUSE
import WardSystem
import WardVolume

/// Checks at the mount that the kernel drops pages when it is told to, as each lock needs.
///
/// A helper process (`ward kernel-probe`) maps and reads a file that is not part of the volume
/// (`ProbeFile`). Then reads of the file are refused and its pages dropped, as at a lock. The
/// helper must get nothing any more. The daemon never touches its own mount.
///
/// Concurrency: any thread; `state` guards everything. A check runs on a thread of its own, one at
/// a time, and only `verdict` and `interrupt` wait for it.
final class KernelCheck: Sendable {
    /// The longest wait of a call that opens classes.
    private static let patience = Duration.seconds(30)

    private struct State {
        var standing = KernelStanding.checking
        var isRunning = false
        var isInterrupted = false
        /// The helper; not reaped while its number is here.
        var helper: pid_t?
    }

    private let volume: Volume
    private let connection: FUSEConnection
    private let report: @Sendable (KernelStanding) -> Void
    private let state = Mutex(State())
    /// Signalled when a check has ended.
    private let ends = FutexWord()

    /// `report` gets each result.
    init(
        _ volume: Volume, _ connection: FUSEConnection,
        report: @escaping @Sendable (KernelStanding) -> Void
    ) {
        self.volume = volume
        self.connection = connection
        self.report = report
    }

    /// Reports each result to the log or as an event.
    convenience init(
        _ volume: Volume, _ connection: FUSEConnection, _ keeper: LockKeeper, _ hub: EventHub,
        _ log: LogWriter
    ) {
        self.init(volume, connection) { standing in
            switch standing {
            case .checking: break
            case .checked: log.write(.notice, "the kernel drops pages as it is told")
            case .failed, .notChecked:
                hub.emit(
                    ControlEvent(
                        kind: .kernelCheck, state: keeper.stateName, operation: standing.word,
                        detail: standing.why))
            }
        }
    }

    var standing: KernelStanding { state.withLock { $0.standing } }

    /// Begins a check unless one is under way. The mount need not be served yet.
    func begin() {
        let isFirst = state.withLock { state in
            if state.isRunning { return false }
            state.isRunning = true
            state.isInterrupted = false
            state.standing = .checking
            return true
        }
        guard isFirst else { return }
        do throws(Errno) {
            try SystemThread("ward-probe") { [self] in finish(check()) }.detach()
        } catch {
            finish(.notChecked("no thread can be started: \(error)"))
        }
    }

    /// Returns the result. Begins a check where there was none. Returns `.checking` where it is
    /// still under way after half a minute.
    func verdict() -> KernelStanding {
        if case .notChecked = standing { begin() }
        state.withLock { state in
            // A program of the same user may have stopped it.
            if let helper = state.helper { _ = kill(helper, SIGCONT) }
        }
        ends.wait(deadline: SystemClock.monotonic() + KernelCheck.patience) {
            standing != .checking
        }
        return standing
    }

    /// Ends a check under way, which would make an unmount fail. A later `verdict` begins another.
    func interrupt() {
        state.withLock { state in
            guard state.isRunning else { return }
            state.isInterrupted = true
            if let helper = state.helper { _ = kill(helper, SIGKILL) }
        }
        ends.wait(deadline: SystemClock.monotonic() + .seconds(1)) {
            state.withLock { !$0.isRunning }
        }
    }

    private func finish(_ result: KernelStanding) {
        let isInterrupted = state.withLock { state in
            state.isRunning = false
            state.standing =
                state.isInterrupted ? .notChecked("an unmount ended the check") : result
            return state.isInterrupted
        }
        if !isInterrupted { report(result) }
        ends.signalAll()
    }

    // MARK: The check

    private func check() -> KernelStanding {
        let pair: (ours: Int32, theirs: Int32)
        do throws(Errno) {
            pair = try Syscall.socketPair()
        } catch {
            return .notChecked("no socket can be made: \(error)")
        }
        let socket = OwnedDescriptor(adopting: pair.ours)
        let name = connection.probe.show()
        defer { connection.probe.hide() }
        let child = OwnProgram.start(
            ["kernel-probe", "--mount-point", connection.mountPoint],
            descriptors: [pair.theirs], ownSession: true)
        Syscall.close(pair.theirs)
        guard let child else { return .notChecked("its helper can't be started") }
        state.withLock { state in
            state.helper = child
            if state.isInterrupted { _ = kill(child, SIGKILL) }
        }
        let before = send(name, socket.rawValue) ? sight(socket.rawValue) : nil
        // As at a lock: what is read from here on is refused, then the pages go.
        connection.probe.refuse()
        volume.dropPages(of: ProbeFile.node)
        let after = before != nil && send([1], socket.rawValue) ? sight(socket.rawValue) : nil
        _ = consume socket
        OwnProgram.awaitEnd(of: child)
        state.withLock { $0.helper = nil }
        OwnProgram.wait(for: child)
        return KernelStanding(before: before, after: after, kernel: KernelCheck.kernelName)
    }

    private func send(_ bytes: [UInt8], _ descriptor: Int32) -> Bool {
        (try? Syscall.writeAll(descriptor, bytes, bytes.count)) != nil
    }

    private func sight(_ descriptor: Int32) -> PageSight? {
        (try? FileReading.bytes(of: descriptor, limit: PageSight.byteCount)).flatMap(
            PageSight.init(bytes:))
    }

    /// The name and release of the kernel, proc_sys_kernel(5).
    private static var kernelName: String {
        let release = try? FileReading.text(of: "/proc/sys/kernel/osrelease", limit: 256)
        let line = release?.split(separator: "\n").first
        return line.map { "Linux \($0)" } ?? "of this machine"
    }
}
