import Dispatch
import Foundation
import Synchronization
import WardContainers
import WardControl
import WardFormat
import WardSimulation
import WardSystem

/// A device for one test: a real volume, mounted in a temporary directory and served by a process
/// of its own, with a clock that only the test moves.
///
/// ```swift
/// let device = try await SimulatedDevice(passcode: "1234")
/// let app = try Diary(at: device.url)
/// try await device.lock()
/// try await device.advance(by: .seconds(10))
/// #expect(throws: CocoaError.self) { try app.readToday() }
/// try await device.unlock()
/// ```
///
/// Everything of it is gone when `remove()` returns, and soon after its last reference went or the
/// test's process ended, by a crash too. As many as are wanted live side by side.
///
/// Concurrency: any task; one call at a time reaches the device, in no order but that of a task's
/// own calls.
public final class SimulatedDevice: Sendable {
    /// Where the volume is mounted: plain files for the program under test.
    public let path: String
    /// The passcode it was made with; nil without one.
    public let passcode: String?
    private let process: SimulatorProcess
    /// Calls wait for the device, which is no place to do so in the pool of Swift's tasks.
    private let queue = DispatchQueue(label: "org.ward.simulated-device")
    private let isCounted = Atomic<Bool>(true)

    /// `path` as a URL.
    public var url: URL { URL(fileURLWithPath: path, isDirectory: true) }

    /// Makes and mounts a volume; it is unlocked, in state `noPasscode` where `passcode` is nil.
    ///
    /// - Parameters:
    ///   - passcode: The device's; nil: none is set, and nothing is ever withheld.
    ///   - gracePeriod: From a lock to the loss of class A, on the device's own clock.
    ///   - defaultClass: Of new files where neither the caller nor the directory says.
    ///
    /// Throws `SimulatorError`: without `/dev/fuse` or the program `ward`, with what to install or
    /// to allow.
    public init(
        passcode: String? = "1234", gracePeriod: Duration = .seconds(10),
        defaultClass: ProtectionClass = .completeUntilFirstUserAuthentication
    ) async throws {
        var settings = SimulatorSettings(passcode: passcode)
        settings.graceSeconds = gracePeriod / .seconds(1)
        settings.defaultClass = defaultClass
        let (process, mount) = try await SimulatedDevice.start(settings, on: queue)
        self.process = process
        self.passcode = passcode
        path = mount.mountPoint
        ContainerContext.countDevices(1)
    }

    deinit { countNoMore() }

    /// The directories of whoever runs the tests are theirs again, when this was the last device.
    private func countNoMore() {
        if isCounted.exchange(false, ordering: .acquiringAndReleasing) {
            ContainerContext.countDevices(-1)
        }
    }

    private static func start(
        _ settings: SimulatorSettings, on queue: DispatchQueue
    ) async throws -> (SimulatorProcess, SimulatedMount) {
        try await run(on: queue) {
            let process = try SimulatorProcess(program: WardProgram.find())
            return (process, try process.start(settings))
        }
    }

    // MARK: The lock

    /// The state now.
    public var state: DeviceState {
        get async throws {
            let status = try await control { try $0.status() }
            return try SimulatedDevice.state(named: status.state)
        }
    }

    /// Locks, as the button does: protected files stay readable for the grace period. With `.now`
    /// they are closed when it returns.
    @discardableResult
    public func lock(_ timing: LockTiming = .afterGracePeriod) async throws -> DeviceState {
        let name = try await control { try $0.lock(now: timing == .now) }
        return try SimulatedDevice.state(named: name)
    }

    /// Unlocks with this passcode, or with the one it was made with. Throws where it is wrong.
    @discardableResult
    public func unlock(_ passcode: String? = nil) async throws -> DeviceState {
        guard let passcode = passcode ?? self.passcode else { return try await state }
        let name = try await control { client in
            try client.unlock(passcode: SecretBytes(testPasscode: passcode))
        }
        return try SimulatedDevice.state(named: name)
    }

    /// Moves the device's clock; returns when everything that fell due is done, a lock's end first
    /// of all.
    @discardableResult
    public func advance(by duration: Duration) async throws -> DeviceState {
        let name = try await control { try $0.advance(seconds: duration / .seconds(1)) }
        return try SimulatedDevice.state(named: name)
    }

    /// Back to before first unlock, as a boot would, while the program under test runs on.
    /// `restart()` is the harder way, with every descriptor lost.
    @discardableResult
    public func reboot() async throws -> DeviceState {
        try SimulatedDevice.state(named: try await control { try $0.reboot() })
    }

    /// Whether files of this class can be opened now.
    public func availability(of protectionClass: ProtectionClass) async throws -> Bool {
        let status = try await control { try $0.status() }
        return status.classes.first { $0.letter == protectionClass.letter }?.available ?? false
    }

    // MARK: What goes wrong

    /// Kills the process that serves the volume: every access fails until `restart()`.
    public func kill() async throws {
        try await perform { try $0.kill() }
    }

    /// Ends the process that serves the volume, where it still runs, and starts it again: before
    /// first unlock, with every descriptor of before lost.
    public func restart() async throws {
        try await perform { _ = try $0.restart() }
    }

    /// What needs room fails with ENOSPC from here on, as on a full disk; what is there can be read
    /// and overwritten.
    public func runOutOfSpace() async throws {
        try await control { try $0.setFull(true) }
    }

    /// There is room again.
    public func makeSpace() async throws {
        try await control { try $0.setFull(false) }
    }

    // MARK: Seeing

    /// Everything that was refused because of a file's class so far: who, what, class, state. The
    /// same again soon after is one with a count, and of a storm of different ones the rest is one.
    public var denials: [FileEvent] {
        get async throws { try await events(.denied) }
    }

    /// Files with content that were deleted, or replaced by others, while they could not be read.
    public var removedUnread: [FileEvent] {
        get async throws { try await events(.removedUnread) }
    }

    /// Who has which files open.
    public var holders: [FileHolder] {
        get async throws {
            try await control { try $0.holders() }.holders.map {
                FileHolder(
                    pid: $0.pid, uid: $0.uid, program: $0.program, path: $0.path,
                    protectionClass: $0.protectionClass.flatMap {
                        ProtectionClass(spelling: $0)
                    }, use: $0.use)
            }
        }
    }

    /// Files by class, and what should not be. In state `unlocked` all contents are compared; else
    /// what can be opened.
    public func audit() async throws -> Audit {
        try await perform { try $0.audit() }
    }

    /// What was refused, and what was removed unread, while `body` ran.
    public func recording<Value>(
        isolation: isolated (any Actor)? = #isolation, _ body: () async throws -> Value
    ) async throws -> Recording<Value> {
        let recording = try await outcome(isolation: isolation, of: body)
        return Recording(
            value: try recording.value.get(), denials: recording.denials,
            removedUnread: recording.removedUnread)
    }

    /// As `recording`, for whoever has something to say about what was thrown, too.
    func outcome<Value>(
        isolation: isolated (any Actor)?, of body: () async throws -> Value
    ) async throws -> Recording<Result<Value, any Error>> {
        let before = SeenEvents(try await perform { try $0.events() })
        let value: Result<Value, any Error>
        do {
            value = .success(try await body())
        } catch {
            value = .failure(error)
        }
        let new = before.new(in: try await perform { try $0.events() })
        return Recording(
            value: value, denials: SimulatedDevice.fileEvents(.denied, new),
            removedUnread: SimulatedDevice.fileEvents(.removedUnread, new))
    }

    private func events(_ kind: ControlEvent.Kind) async throws -> [FileEvent] {
        SimulatedDevice.fileEvents(kind, try await perform { try $0.events() })
    }

    private static func fileEvents(
        _ kind: ControlEvent.Kind, _ events: [ControlEvent]
    ) -> [FileEvent] {
        events.filter { $0.kind == kind.rawValue }.compactMap { FileEvent($0) }
    }

    // MARK: The end

    /// Unmounts the volume and removes everything of it; returns when that is done. Later calls
    /// throw.
    public func remove() async throws {
        defer { countNoMore() }
        try await perform { try $0.end() }
    }

    // MARK: Calling

    private static func state(named name: String) throws -> DeviceState {
        guard let state = DeviceState(rawValue: name) else {
            throw SimulatorError(
                "cannot tell the device's state", why: "\(name) is none that this library knows",
                hint: "WARD_BINARY names the program to use")
        }
        return state
    }

    private func perform<Value: Sendable>(
        _ body: @escaping @Sendable (SimulatorProcess) throws -> Value
    ) async throws -> Value {
        let process = process
        return try await SimulatedDevice.run(on: queue) { try body(process) }
    }

    private func control<Value: Sendable>(
        _ body: @escaping @Sendable (ControlClient) throws -> Value
    ) async throws -> Value {
        // Each mount has a socket of its own: `restart` makes another.
        let path = path
        return try await SimulatedDevice.run(on: queue) {
            try body(ControlClient(volumeAt: path))
        }
    }

    /// Containers are made through the mount, as any program could.
    func changeContainers<Value: Sendable>(
        _ body: @escaping @Sendable (VolumeContainers) throws -> Value
    ) async throws -> Value {
        let containers = VolumeContainers(root: path)
        return try await SimulatedDevice.run(on: queue) { try body(containers) }
    }

    private static func run<Value: Sendable>(
        on queue: DispatchQueue, _ body: @escaping @Sendable () throws -> Value
    ) async throws -> Value {
        try await withCheckedThrowingContinuation { continuation in
            queue.async { continuation.resume(with: Result { try body() }) }
        }
    }
}
