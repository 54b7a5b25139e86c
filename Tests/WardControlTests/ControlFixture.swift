import Glibc
import WardSystem

@testable import WardControl

/// A control socket of its own, served with a test's handler.
final class ControlFixture<Handler: ControlHandler> {
    let directory: String
    let path: String
    let handler: Handler
    let server: ControlServer

    init(_ handler: Handler) throws {
        var template = Array("/tmp/ward-control-test-XXXXXX".utf8CString)
        directory = String(cString: mkdtemp(&template))
        path = directory + "/a.socket"
        self.handler = handler
        server = try ControlServer(socketPath: path, version: "1.2.3", handler: handler)
    }

    deinit {
        server.stop()
        rmdir(directory)
    }

    func connect() throws -> OwnedDescriptor { try ControlSocket.connect(to: path) }
}

func makeSecret(_ bytes: [UInt8]) throws -> SecretBytes {
    var secret = try SecretBytes(zeroed: bytes.count)
    secret.withUnsafeMutableBytes { $0.copyBytes(from: bytes) }
    return secret
}
