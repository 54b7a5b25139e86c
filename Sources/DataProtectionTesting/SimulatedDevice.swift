import Dispatch
import Foundation
import Synchronization
import WardContainers
import WardControl
import WardFormat
import WardSimulation
import WardSystem

/// A device for one test: a real volume, mounted in a temporary directory. A process of its own
/// serves it, and only the test moves its clock.
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
/// `remove()` removes the device with all its files. The release of the last reference does so soon
/// after, and so does the end of the test's process, also by a crash. Many devices can exist side
/// by side.
///
/// Concurrency: any task may call. The device handles one call at a time. Only calls of one task
/// are in order.
///
/// The calls throw `SimulatorError`, or the error of the device's daemon.
public final class SimulatedDevice: Sendable {
    /// The mount point of the volume. The program under test sees plain files there.
    public let path: String
    /// The passcode that the device was made with; nil without one.
    public let passcode: String?
    private let process: SimulatorProcess
    /// Calls block until the device answers, so they run here and not in the pool of Swift's tasks.
    private let queue = DispatchQueue(label: "org.ward.simulated-device")
    private let isCounted = Atomic<Bool>(true)

    /// `path` as a URL.
    public var url: URL { URL(fileURLWithPath: path, isDirectory: true) }

    /// Makes and mounts a volume. It is unlocked, or in state `noPasscode` where `passcode` is nil.
    ///
    /// - Parameters:
    ///   - passcode: The device's passcode. With nil none is set, and no class is ever withheld.
    ///   - gracePeriod: The time from a lock to the loss of class A, on the device's own clock.
    ///   - defaultClass: The class of new files where neither the caller nor the directory says
    ///     another.
    ///
    /// - Throws: `SimulatorError` without `/dev/fuse` or the program `ward`. The error says what to
    ///   install or to allow.
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

    /// Counts this device as removed. After the last one, the process gets the user's own
    /// directories again.
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

    /// The present state.
    public var state: DeviceState {
        get async throws {
            let status = try await control { try $0.status() }
            return try SimulatedDevice.state(named: status.state)
        }
    }

    /// Locks the device, as its button does: protected files stay readable for the grace period.
    /// With `.now` they are closed when the call returns.
    @discardableResult
    public func lock(_ timing: LockTiming = .afterGracePeriod) async throws -> DeviceState {
        let name = try await control { try $0.lock(now: timing == .now) }
        return try SimulatedDevice.state(named: name)
    }

    /// Unlocks with this passcode, or with the passcode of the device's creation. Throws where it
    /// is wrong.
    @discardableResult
    public func unlock(_ passcode: String? = nil) async throws -> DeviceState {
        guard let passcode = passcode ?? self.passcode else { return try await state }
        let name = try await control { client in
            try client.unlock(passcode: SecretBytes(testPasscode: passcode))
        }
        return try SimulatedDevice.state(named: name)
    }

    /// Moves the device's clock. Returns when all timers that fell due have run, the end of a lock
    /// among them.
    @discardableResult
    public func advance(by duration: Duration) async throws -> DeviceState {
        let name = try await control { try $0.advance(seconds: duration / .seconds(1)) }
        return try SimulatedDevice.state(named: name)
    }

    /// Returns to the state before first unlock, as a boot does, while the program under test goes
    /// on. With `restart()` also every descriptor is lost.
    @discardableResult
    public func reboot() async throws -> DeviceState {
        try SimulatedDevice.state(named: try await control { try $0.reboot() })
    }

    /// Whether files of a class can be opened now.
    public func availability(of protectionClass: ProtectionClass) async throws -> Bool {
        let status = try await control { try $0.status() }
        return status.classes.first { $0.letter == protectionClass.letter }?.available ?? false
    }

    // MARK: What goes wrong

    /// Kills the process that serves the volume. Every access fails until `restart()`.
    public func kill() async throws {
        try await perform { try $0.kill() }
    }

    /// Starts the process that serves the volume again, and ends the old one if it still runs. The
    /// device is then before first unlock, and all older descriptors are lost.
    public func restart() async throws {
        try await perform { _ = try $0.restart() }
    }

    /// Makes the device full: calls that need space fail with ENOSPC. Existing data can be read and
    /// overwritten.
    public func runOutOfSpace() async throws {
        try await control { try $0.setFull(true) }
    }

    /// Ends `runOutOfSpace()`.
    public func makeSpace() async throws {
        try await control { try $0.setFull(false) }
    }

    // MARK: Seeing

    /// The calls that were refused because of a file's class until now: program, file, class,
    /// state. A quick repetition is counted in the same event. In a storm of different refusals,
    /// one event stands for the rest.
    public var denials: [FileEvent] {
        get async throws { try await events(.denied) }
    }

    /// The files with content that were deleted or replaced while they could not be read.
    public var removedUnread: [FileEvent] {
        get async throws { try await events(.removedUnread) }
    }

    /// The processes that use files of the device, and the files.
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

    /// Files by class, and the mistakes found. In state `unlocked` all contents are compared, in
    /// other states those that can be opened.
    public func audit() async throws -> Audit {
        try await perform { try $0.audit() }
    }

    /// Runs `body` and reports the refusals and the files removed unread in that time. Throws the
    /// errors of `body`.
    public func recording<Value>(
        isolation: isolated (any Actor)? = #isolation, _ body: () async throws -> Value
    ) async throws -> Recording<Value> {
        let recording = try await outcome(isolation: isolation, of: body)
        return Recording(
            value: try recording.value.get(), denials: recording.denials,
            removedUnread: recording.removedUnread)
    }

    /// Like `recording`, for a caller that also needs the error of `body`.
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

    /// Unmounts the volume and removes all its files. Returns when that is done. Later calls throw.
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
        // Each mount has its own socket, and `restart` makes another mount.
        let path = path
        return try await SimulatedDevice.run(on: queue) {
            try body(ControlClient(volumeAt: path))
        }
    }

    /// Changes containers through the mount, as any program could.
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
