import CWardLinux
import Glibc
import Synchronization
import Testing
import WardSystem

import func WardTestSupport.comesTrue

@testable import WardControl

/// The connection of a trusted host at the control socket: it lasts as long as its client, and its
/// secret crosses it once.
@Suite(.timeLimit(.minutes(10))) struct HostCallTests {
    private final class Handler: ControlHandler {
        let calls = Mutex<[ControlCall]>([])
        let gone = Mutex(0)

        /// Waits until it was told of the end of so many clients.
        func comesToMiss(_ clients: Int) -> Bool {
            comesTrue { gone.withLock { $0 } == clients }
        }

        func handle(_ method: ControlMethod, _ call: ControlCall) {
            guard method == .trustConnect else { return call.fail(.clockNotManual) }
            let secret = call.parameters["secret"]?.secretValue
            let isRight = secret.map { $0.bytes.withUnsafeBytes { Array($0.prefix(2)) } }
            let kept = call.withoutParameters
            calls.withLock { $0.append(kept) }
            call.whenGone { [weak self] in self?.gone.withLock { $0 += 1 } }
            guard isRight == Array("0a".utf8) else { return call.fail(.refused(.hostUnknown)) }
            call.reply(
                .object([("name", .string("laptop")), ("state", .string("locked"))]),
                continues: true)
        }
    }

    /// A client whose host is connected.
    private func connect(to fixture: ControlFixture<Handler>) throws -> ControlClient {
        let client = try ControlClient(socketPath: fixture.path)
        let secret = try makeSecret([0x0A, 0xFF] + [UInt8](repeating: 7, count: 30))
        let notice = try client.trustConnect(
            hostID: [UInt8](repeating: 1, count: 16), secret: secret)
        #expect(notice == .connected(name: "laptop", state: "locked"))
        return client
    }

    @Test("the end of the client is told, once, also where it ends together with others")
    func whenGone() throws {
        let fixture = try ControlFixture(Handler())
        var clients = try (0..<3).map { _ in try connect(to: fixture) }
        #expect(fixture.handler.gone.withLock { $0 } == 0)
        clients.removeLast()
        #expect(fixture.handler.comesToMiss(1))
        clients = []
        #expect(fixture.handler.comesToMiss(3))
        // If the client is already gone, the handler is told at once.
        let late = Mutex(0)
        fixture.handler.calls.withLock { $0[0] }.whenGone { late.withLock { $0 += 1 } }
        #expect(late.withLock { $0 } == 1)
    }

    @Test("nothing that is kept of the call has the secret; the daemon's last word arrives")
    func endedByDaemon() throws {
        let fixture = try ControlFixture(Handler())
        let client = try connect(to: fixture)
        let call = fixture.handler.calls.withLock { $0[0] }
        #expect(call.parameters == .object([]))
        #expect(call.reply(.object([("ended", .string("removed"))])))
        #expect(try client.hostNotice() == .ended(reason: "removed"))
    }

    @Test("two words at once: the second is not forgotten")
    func twoWords() throws {
        let fixture = try ControlFixture(Handler())
        let client = try connect(to: fixture)
        let call = fixture.handler.calls.withLock { $0[0] }
        call.reply(
            .object([("name", .string("laptop")), ("state", .string("again"))]), continues: true)
        call.reply(.object([("ended", .string("removed"))]))
        // Both notices arrive before the first is read. Each ends with a zero byte.
        var bytes = [UInt8](repeating: 0, count: 4096)
        let haveArrived = comesTrue {
            let count = recv(
                client.pollDescriptor, &bytes, bytes.count,
                Int32(MSG_PEEK | MSG_DONTWAIT))
            return bytes.prefix(max(0, count)).count { $0 == 0 } == 2
        }
        #expect(haveArrived, "both notices arrive")
        #expect(try client.hostNotice() == .connected(name: "laptop", state: "again"))
        #expect(client.hasUnreadAnswer)
        #expect(try client.hostNotice() == .ended(reason: "removed"))
        #expect(!client.hasUnreadAnswer)
    }

    @Test("without \"more\" it is refused; with eight there is no room for a ninth")
    func limits() throws {
        let fixture = try ControlFixture(Handler())
        let plain = try ControlClient(socketPath: fixture.path)
        #expect(throws: ControlError.self) {
            try plain.call(qualified: ControlMethod.trustConnect.qualifiedName)
        }
        #expect(fixture.handler.calls.withLock { $0.isEmpty })
        var clients = try (0..<ControlServer.maximumHosts).map { _ in try connect(to: fixture) }
        #expect(throws: ControlError.self) { try connect(to: fixture) }
        clients.removeFirst()
        #expect(fixture.handler.comesToMiss(1))
        clients.append(try connect(to: fixture))
    }

    @Test("digits of secrets, there and back")
    func hexadecimal() throws {
        let bytes: [UInt8] = [0, 1, 0x0F, 0x10, 0xAB, 0xFF]
        let text = try HexSecret.encode(try makeSecret(bytes))
        #expect(text.withUnsafeBytes { Array($0) } == Array("00010f10abff".utf8))
        #expect(HexSecret.text(bytes) == "00010f10abff")
        #expect(HexSecret.bytes("00010F10abff") == bytes)
        let back = try HexSecret.decode(text)
        switch back {
        case .some(let back): #expect(back.withUnsafeBytes { Array($0) } == bytes)
        case .none: Issue.record("not read back")
        }
        for wrong in ["0", "0g", "é0", "0x"] {
            #expect(HexSecret.bytes(wrong) == nil)
            let isRead = try HexSecret.decode(try makeSecret(Array(wrong.utf8))) != nil
            #expect(!isRead, "\(wrong)")
        }
    }
}
