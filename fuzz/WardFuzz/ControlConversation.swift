import Glibc
import Synchronization
import WardSystem

@testable import WardControl

/// A control server and its clients. Each input is the messages of one client.
///
/// After each of them the server must still answer another client.
enum ControlConversation {
    private static let handler = Handler()
    private static let server: ControlServer = {
        guard
            let server = try? ControlServer(
                socketPath: Scratch.directory() + "/control", version: "0", handler: handler)
        else { fatalError("no control server") }
        return server
    }()

    static func hold(_ bytes: [UInt8]) {
        let answers = say(bytes + [0])
        let asked = bytes.count { $0 == 0 } + 1
        // A call with `more` gets two answers from the handler.
        require(answers.count <= 2 * asked, "\(answers.count) answers to \(asked) messages")
        for answer in answers {
            let value = taken { () throws(JSONError) in try JSONParser.parse(answer) }
            guard let value else { fatalError("an answer is no JSON") }
            require(
                value["error"]?.stringValue != nil || value["parameters"] != nil,
                "an answer is neither an error nor parameters")
        }
        let answer = say(Array(#"{"method":"org.varlink.service.GetInfo"}"#.utf8) + [0])
        require(answer.count == 1, "the server answers nobody any more")
    }

    /// Sends `bytes` and returns all answers of the server.
    private static func say(_ bytes: [UInt8]) -> [[UInt8]] {
        guard let socket = try? ControlSocket.connect(to: server.socketPath) else {
            fatalError("the server can't be reached any more")
        }
        // Shorter than the limit of fuzz/run for one input.
        var limit = timeval(tv_sec: 15, tv_usec: 0)
        setsockopt(
            socket.rawValue, SOL_SOCKET, SO_RCVTIMEO, &limit, socklen_t(MemoryLayout<timeval>.size))
        // Fails where the server has dropped the client in the meantime.
        _ = send(socket.rawValue, bytes, bytes.count, Int32(MSG_NOSIGNAL))
        shutdown(socket.rawValue, Int32(SHUT_WR))
        var received: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 1 << 16)
        while true {
            let count = recv(socket.rawValue, &chunk, chunk.count, 0)
            if count > 0 {
                received += chunk[..<count]
            } else if count == 0 || errno != EINTR {
                // The timer of libFuzzer interrupts with EINTR.
                require(count == 0 || errno == ECONNRESET, "the server does not go on")
                break
            }
        }
        require(received.isEmpty || received.last == 0, "an answer has no end")
        return received.split(separator: 0).map(Array.init)
    }

    /// Answers as the daemon does, once or several times, and reads parameters of each type.
    private final class Handler: ControlHandler {
        func handle(_ method: ControlMethod, _ call: ControlCall) {
            let parameters = call.parameters
            if let name = parameters["name"]?.stringValue { _ = HexSecret.bytes(name) }
            if let secret = parameters["secret"]?.secretValue {
                _ = try? HexSecret.decode(secret.bytes)
            }
            if parameters["fail"] != nil { return call.failInvalidParameter("fail") }
            if call.wantsMore { call.reply(parameters, continues: true) }
            call.reply(parameters)
        }
    }
}
