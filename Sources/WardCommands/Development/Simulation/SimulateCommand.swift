import ArgumentParser
import CWardLinux
import Glibc
import WardConsole
import WardControl
import WardSimulation
import WardSystem

/// Internal command, started by `ward test` and the library DataProtectionTesting. Makes a device
/// for tests, serves requests from the socket at standard input, and removes everything when the
/// socket ends.
struct SimulateCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "simulate", abstract: "Serve a device for tests.", shouldDisplay: false)

    /// The interval of checks for the parent. The socket tells its end, unless a forked child of
    /// the parent still holds it.
    private static let parentCheckMilliseconds: Int32 = 500
    private static let endings = [SIGTERM, SIGINT, SIGHUP]

    func run() throws {
        Durability.giveUp()
        // Close descriptors that the test process had open without FD_CLOEXEC, above all other
        // devices' sockets.
        _ = ward_close_range(3, UInt32.max, 0)
        let parent = getppid()
        var signals = sigset_t()
        sigemptyset(&signals)
        for signal in SimulateCommand.endings { sigaddset(&signals, signal) }
        sigprocmask(SIG_BLOCK, &signals, nil)
        let signalDescriptor = OwnedDescriptor(
            adopting: signalfd(-1, &signals, Int32(SFD_CLOEXEC)))
        let input = fcntl(0, F_DUPFD_CLOEXEC, 3)
        guard input >= 0 else {
            throw CommandFailure(
                "cannot simulate a device", errno: Errno(rawValue: errno), status: .usage)
        }
        let socket = LineSocket(adopting: input)
        var device: SimulatedVolume?
        while wait(socket, signalDescriptor.rawValue, parent) {
            guard let message = try? socket.receive(), let request = SimulatorRequest(json: message)
            else { break }
            if case .end = request { break }
            try? socket.send(SimulateCommand.answer(request, &device))
        }
        let leftover = device?.remove()
        try? socket.send(leftover.map(\.json) ?? .object([]))
    }

    /// Waits for a request; returns false when it is time to end.
    private func wait(_ socket: LineSocket, _ signals: Int32, _ parent: pid_t) -> Bool {
        var waiting = [
            pollfd(fd: socket.rawValue, events: Int16(POLLIN), revents: 0),
            pollfd(fd: signals, events: Int16(POLLIN), revents: 0),
        ]
        while true {
            _ = waiting.withUnsafeMutableBufferPointer {
                try? Syscall.poll(
                    $0, timeoutMilliseconds: SimulateCommand.parentCheckMilliseconds)
            }
            if waiting[1].revents != 0 || getppid() != parent { return false }
            if waiting[0].revents != 0 { return true }
        }
    }

    private static func answer(
        _ request: SimulatorRequest, _ device: inout SimulatedVolume?
    ) -> JSONValue {
        do throws(SimulatorError) {
            if case .start(let settings) = request, device == nil {
                let made = try SimulatedVolume.make(settings)
                device = made
                return made.mount.json
            }
            guard let device else {
                throw SimulatorError("cannot serve the request", why: "no device was started")
            }
            switch request {
            case .start, .end:
                throw SimulatorError("cannot start the device", why: "it was started already")
            case .kill: try device.kill()
            case .restart: return try device.restart().json
            case .events:
                return .object([("events", .array(device.events().map(\.json)))])
            case .audit: return try device.audit().json
            }
            return .object([])
        } catch {
            return error.json
        }
    }
}
