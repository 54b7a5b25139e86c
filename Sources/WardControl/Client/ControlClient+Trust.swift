import CWardLinux
import Glibc
import WardSystem

/// Trusted hosts.
extension ControlClient {
    /// Trusts the host `hostID` under `name` from now on; the host will present `secret`.
    public func trustAdd(
        name: String, hostID: [UInt8], secret: borrowing SecretBytes,
        passcode: borrowing SecretBytes
    ) throws(ControlError) {
        let text = try hex(secret)
        _ = try call(
            .trustAdd, secrets: "passcode", passcode, "secret", text,
            beside: .object([("name", .string(name)), ("host", .string(HexSecret.text(hostID)))]))
    }

    /// Every host that is trusted, or was until its trust expired.
    public func trustList() throws(ControlError) -> [HostStatus] {
        guard let hosts = try call(.trustList)["hosts"]?.arrayValue else {
            throw violation("no hosts in the answer")
        }
        return hosts.compactMap(HostStatus.init(json:))
    }

    /// Removes a trusted host. Returns after its connections have ended, and after the lock where
    /// only they delayed it.
    public func trustRemove(name: String) throws(ControlError) {
        _ = try call(.trustRemove, .object([("name", .string(name))]))
    }

    /// A message of the daemon on a host's connection.
    public enum HostNotice: Equatable, Sendable {
        /// Classes A and B are open from now on.
        case connected(name: String, state: String)
        /// The daemon ended the connection.
        case ended(reason: String)
    }

    /// Presents a host's secret. Classes A and B stay open while this connection lasts; later
    /// messages come from `hostNotice`.
    public func trustConnect(
        hostID: [UInt8], secret: borrowing SecretBytes
    ) throws(ControlError) -> HostNotice {
        let text = try hex(secret)
        var message = try SecretMessage(
            method: ControlMethod.trustConnect.qualifiedName, capacity: text.count,
            plain: .object([("host", .string(HexSecret.text(hostID)))]), more: true,
            path: socketPath)
        message.append("secret", text)
        try finish(&message)
        return try hostNotice()
    }

    /// Waits for the daemon's next message. Throws `connectionLost` where the daemon ends.
    public func hostNotice() throws(ControlError) -> HostNotice {
        let answer = try readAnswer()
        if let reason = answer.parameters["ended"]?.stringValue { return .ended(reason: reason) }
        guard let name = answer.parameters["name"]?.stringValue,
            let state = answer.parameters["state"]?.stringValue, answer.continues
        else { throw violation("neither connected nor ended") }
        return .connected(name: name, state: state)
    }

    /// Whether an answer was received already; poll(2) does not report it.
    public var hasUnreadAnswer: Bool { received.contains(0) }

    /// Readable for poll(2) when `hostNotice` will not wait, or not for long.
    public var pollDescriptor: Int32 { socket.rawValue }

    /// Ends the connection now. The client can't be used afterwards.
    public func hangUp() { _ = shutdown(socket.rawValue, Int32(SHUT_RDWR)) }

    private func hex(_ secret: borrowing SecretBytes) throws(ControlError) -> SecretBytes {
        do throws(Errno) {
            return try HexSecret.encode(secret)
        } catch {
            throw ControlError(
                .system(error), path: socketPath, "no memory can be locked for a secret")
        }
    }
}
