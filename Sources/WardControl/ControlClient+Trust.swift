import CWardLinux
import Glibc
import WardSystem

/// Trusted hosts.
extension ControlClient {
    /// Has the host `hostID` trusted under `name`; `secret` is what it will present.
    public func trustAdd(
        name: String, hostID: [UInt8], secret: borrowing SecretBytes,
        passcode: borrowing SecretBytes
    ) throws(ControlError) {
        let text = try hex(secret)
        _ = try call(
            "TrustAdd", secrets: "passcode", passcode, "secret", text,
            beside: .object([("name", .string(name)), ("host", .string(HexSecret.text(hostID)))]))
    }

    public func trustList() throws(ControlError) -> [HostStatus] {
        guard let hosts = try call("TrustList")["hosts"]?.arrayValue else {
            throw violation("no hosts in the answer")
        }
        return hosts.compactMap(HostStatus.init(json:))
    }

    /// Returns when the host's connections are ended, and with the lock where that was held up by
    /// them.
    public func trustRemove(name: String) throws(ControlError) {
        _ = try call("TrustRemove", .object([("name", .string(name))]))
    }

    /// What the daemon says on the connection of a host.
    public enum HostNotice: Equatable, Sendable {
        /// A and B are open from now on.
        case connected(name: String, state: String)
        /// The daemon has ended it: why.
        case ended(reason: String)
    }

    /// Presents a host's secret. A and B stay open while this connection stands; afterwards use
    /// `hostNotice`.
    public func trustConnect(
        hostID: [UInt8], secret: borrowing SecretBytes
    ) throws(ControlError) -> HostNotice {
        let text = try hex(secret)
        var message = try SecretMessage(
            method: VolumeInterface.qualified("TrustConnect"), capacity: text.count,
            plain: .object([("host", .string(HexSecret.text(hostID)))]), more: true,
            path: socketPath)
        message.append("secret", text)
        try finish(&message)
        return try hostNotice()
    }

    /// Waits for what the daemon says next. Throws `connectionLost` where the daemon ends.
    public func hostNotice() throws(ControlError) -> HostNotice {
        let answer = try readAnswer()
        if let reason = answer.parameters["ended"]?.stringValue { return .ended(reason: reason) }
        guard let name = answer.parameters["name"]?.stringValue,
            let state = answer.parameters["state"]?.stringValue, answer.continues
        else { throw violation("neither connected nor ended") }
        return .connected(name: name, state: state)
    }

    /// An answer is here already, and poll(2) will not tell of it.
    public var hasUnreadAnswer: Bool { received.contains(0) }

    /// Readable, poll(2), where `hostNotice` will not wait, or not for long.
    public var pollDescriptor: Int32 { socket.rawValue }

    /// Ends the connection now; it is of no use afterwards.
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
