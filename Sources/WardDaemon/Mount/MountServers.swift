import Glibc
import WardControl
import WardSystem
import WardVolume

/// The servers of a mount's two sockets, and what answers them: the control socket, and the state
/// socket for programs in a sandbox.
///
/// Concurrency: constant after `init`.
final class MountServers: Sendable {
    let service: ControlService
    let control: ControlServer
    private let state: ControlServer
    /// Retained here: a server does not retain its handler.
    private let stateService: StateService
    private let presence: ControlPresence
    private let statePresence: ControlPresence

    /// `changed` hears of changes of the control socket.
    init(
        _ service: ControlService, in runtime: RuntimeDirectory, record: MountedVolume,
        changed: @escaping @Sendable (ControlPresence.Change) -> Void
    ) throws(ControlError) {
        self.service = service
        presence = ControlPresence(in: runtime, record: record, changed: changed)
        // Its loss locks nothing, so it is not reported.
        statePresence = ControlPresence(.state, in: runtime, record: record) { _ in }
        stateService = StateService(service.status)
        control = try ControlServer(
            presence: presence, version: WardVersion.current, handler: service,
            reserve: MountServers.lowestDescriptor())
        state = try ControlServer(
            presence: statePresence, version: WardVersion.current,
            methods: StateInterface.methods, handler: stateService)
    }

    var socketPath: String { presence.socketPath }

    /// Has the volume's attributes about the mount answered.
    func answer(_ volume: Volume) {
        let attributes = service.mountAttributes
        volume.setVirtualAttributes { [presence] in presence.socketPath }
        volume.answerMountAttributes {
            [presence, statePresence] (name, caller, isRoot) throws(Errno) in
            let endpoints = presence.endpoint.map {
                ControlEndpoints(control: $0, state: statePresence.endpoint)
            }
            return try attributes.answer(name, caller, isRoot: isRoot, endpoints)
        }
    }

    /// Has both sockets and their records checked soon.
    func lookAfterPresence() {
        control.lookAfterPresence()
        state.lookAfterPresence()
    }

    func stop() {
        control.stop()
        state.stop()
    }

    /// Makes standard input, which no code reads any more, the reserve descriptor. A lowered
    /// `RLIMIT_NOFILE` takes away number 0 last.
    private static func lowestDescriptor() -> Int32? {
        guard let null = try? OwnedDescriptor(opening: "/dev/null", O_RDONLY) else { return nil }
        return dup2(null.rawValue, 0) == 0 ? 0 : nil
    }
}
