/// Finds the method of each call: answers those of `org.varlink.service`, limits how many calls are
/// under way, and passes the others to the handler.
///
/// Belongs to the server's thread.
final class ControlDispatcher {
    /// The handler is not retained.
    weak let handler: (any ControlHandler)?
    private let version: String
    /// Methods of `org.ward.Volume`.
    private let methods: Set<ControlMethod>
    private let clients: ControlClients
    private let outbox: Outbox

    init(
        handler: any ControlHandler, version: String, methods: Set<ControlMethod>,
        clients: ControlClients, outbox: Outbox
    ) {
        self.handler = handler
        self.version = version
        self.methods = methods
        self.clients = clients
        self.outbox = outbox
    }

    /// Answers a call, or passes it to the handler.
    func dispatch(
        _ method: String, _ message: JSONValue, _ id: UInt64, _ connection: ControlConnection
    ) {
        let dot = method.lastIndex(of: ".") ?? method.startIndex
        let interface = String(method[..<dot])
        let member = String(method[dot...].dropFirst())
        let call = ControlCall(
            parameters: message["parameters"] ?? .object([]), peer: connection.peer,
            wantsMore: message["more"]?.boolValue ?? false,
            isOneway: message["oneway"]?.boolValue ?? false, client: id, outbox: outbox)
        let busy = clients.count { $0.isBusy }
        connection.isBusy = true
        if busy >= ControlServer.maximumBusy, member != ControlMethod.lock.rawValue,
            !connection.isOwn
        {
            call.fail(.busy(reason: "\(busy) calls are under way already"))
            return
        }
        switch interface {
        case StandardInterface.name: answerStandard(member, call)
        case VolumeInterface.name:
            guard let known = ControlMethod(rawValue: member) else {
                call.fail(
                    StandardInterface.qualified("MethodNotFound"),
                    .object([("method", .string(method))]))
                return
            }
            guard methods.contains(known) else {
                call.fail(
                    StandardInterface.qualified("MethodNotImplemented"),
                    .object([("method", .string(method))]))
                return
            }
            guard admit(known, call, connection) else { return }
            if let handler {
                handler.handle(known, call)
            } else {
                call.fail(.busy(reason: "the mount ends"))
            }
        case HelperInterface.name
        where connection.isOwn && HelperInterface.methods.contains(member):
            if let handler { handler.handleHelper(call) } else { call.reply() }
        default:
            call.fail(
                StandardInterface.qualified("InterfaceNotFound"),
                .object([("interface", .string(interface))]))
        }
    }

    /// Checks a call that lasts until the client hangs up. False where it was refused and answered.
    private func admit(
        _ method: ControlMethod, _ call: ControlCall, _ connection: ControlConnection
    ) -> Bool {
        guard method.isLasting else { return true }
        guard call.wantsMore else {
            call.fail(StandardInterface.qualified("ExpectedMore"))
            return false
        }
        if method == .trustConnect {
            let hosts = clients.count { $0.isHost }
            guard hosts < ControlServer.maximumHosts else {
                call.fail(.busy(reason: "\(hosts) trusted hosts are connected already"))
                return false
            }
            connection.isHost = true
        } else {
            let monitors = clients.count { $0.isMonitor }
            guard monitors < ControlServer.maximumMonitors else {
                call.fail(.busy(reason: "\(monitors) programs watch the events already"))
                return false
            }
            connection.isMonitor = true
        }
        return true
    }

    private func answerStandard(_ method: String, _ call: ControlCall) {
        switch method {
        case "GetInfo":
            call.reply(
                .object([
                    ("vendor", .string("ward")), ("product", .string("ward")),
                    ("version", .string(version)), ("url", .string("https://varlink.org")),
                    (
                        "interfaces",
                        .array([.string(StandardInterface.name), .string(VolumeInterface.name)])
                    ),
                ]))
        case "GetInterfaceDescription":
            switch call.parameters["interface"]?.stringValue {
            case nil: call.failInvalidParameter("interface")
            case StandardInterface.name:
                call.reply(.object([("description", .string(StandardInterface.description))]))
            case VolumeInterface.name:
                call.reply(.object([("description", .string(VolumeInterface.description))]))
            case .some(let other):
                call.fail(
                    StandardInterface.qualified("InterfaceNotFound"),
                    .object([("interface", .string(other))]))
            }
        default:
            call.fail(
                StandardInterface.qualified("MethodNotFound"),
                .object([("method", .string(StandardInterface.qualified(method)))]))
        }
    }
}
