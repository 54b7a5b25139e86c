import Foundation

/// One event of the control socket's `Monitor`, read by a client that shares no code with ward.
struct ControlEvent: CustomStringConvertible {
    let fields: [String: String]
    var kind: String { fields["kind"] ?? "" }
    var description: String { "\(fields)" }

    /// All events that the daemon remembers, the oldest first.
    static func latest(of volume: MountedVolume) throws -> [ControlEvent] {
        guard let socket = volume.socketPath() else { throw SupportError("no control socket") }
        let environment = TestEnvironment.shared
        let done = try Child.run(
            volume.user.prefix + [environment.python, environment.script("events.py"), socket],
            environment: volume.environment, seconds: 60)
        guard done.succeeded else { throw SupportError("events: \(done.everything)") }
        return try done.output.split(separator: "\n").map { line in
            let object = try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any]
            return ControlEvent(fields: (object ?? [:]).mapValues { "\($0)" })
        }
    }
}
