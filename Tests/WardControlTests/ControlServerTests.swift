import CWardLinux
import Glibc
import Synchronization
import Testing
import WardSystem

import func WardTestSupport.comesTrue

@testable import WardControl

/// Real sockets, and a simple handler.
@Suite(.timeLimit(.minutes(10))) struct ControlServerTests {
    /// Answers as a volume would, and keeps what it was given.
    private final class Handler: ControlHandler {
        let passcodes = Mutex<[[UInt8]]>([])
        let monitors = Mutex<[ControlCall]>([])
        let held = Mutex<[ControlCall]>([])
        let triggers = Mutex<JSONValue?>(nil)

        func handleHelper(_ call: ControlCall) {
            triggers.withLock { $0 = call.parameters["triggers"] }
            call.reply()
        }

        func handle(_ method: ControlMethod, _ call: ControlCall) {
            switch method {
            case .lock: call.reply(.object([("state", .string("locking"))]))
            case .unlock:
                let passcode = call.parameters["passcode"]?.secretValue?.bytes.withUnsafeBytes {
                    Array($0)
                }
                passcodes.withLock { $0.append(passcode ?? []) }
                if passcode == Array("right ü\"\\\n".utf8) {
                    call.reply(.object([("state", .string("unlocked"))]))
                } else {
                    call.fail(.wrongPasscode(triesLeft: 9))
                }
            case .monitor:
                monitors.withLock { $0.append(call) }
                for index in 0..<(call.parameters["last"]?.intValue ?? 0) {
                    call.reply(
                        .object([("event", ControlEvent(kind: .note, detail: "\(index)").json)]),
                        continues: true)
                }
                if call.parameters["follow"]?.boolValue == false { call.reply() }
            case .advance: held.withLock { $0.append(call) }
            default: call.reply()
            }
        }
    }

    private func send(_ socket: Int32, _ text: String) -> Bool {
        let bytes = Array(text.utf8)
        var done = 0
        while done < bytes.count {
            let sent = bytes.withUnsafeBytes {
                Glibc.send(
                    socket, $0.baseAddress! + done, $0.count - done, Int32(MSG_NOSIGNAL))
            }
            if sent < 0 { return false }
            done += sent
        }
        return true
    }

    /// Everything up to the next zero byte; nil at the end of the stream.
    private func receive(_ socket: Int32) -> String? {
        var bytes: [UInt8] = []
        var byte: UInt8 = 0
        while recv(socket, &byte, 1, 0) == 1 {
            if byte == 0 { return String(decoding: bytes, as: UTF8.self) }
            bytes.append(byte)
        }
        return nil
    }

    @Test("a server of some methods does not hand over the others")
    func someMethods() throws {
        let fixture = try ControlFixture(Handler())
        let path = fixture.directory + "/b.socket"
        let server = try ControlServer(
            socketPath: path, version: "1", methods: StateInterface.methods,
            handler: fixture.handler)
        defer { server.stop() }
        for method in ControlMethod.allCases where !StateInterface.methods.contains(method) {
            let client = try ControlClient(socketPath: path)
            let error = #expect(throws: ControlError.self) {
                try client.call(qualified: method.qualifiedName)
            }
            guard case .varlink("org.varlink.service.MethodNotImplemented", _) = error?.code else {
                Issue.record("\(method): \(String(describing: error))")
                continue
            }
        }
        #expect(fixture.handler.passcodes.withLock { $0.isEmpty })
        _ = try ControlClient(socketPath: path).call(qualified: "org.ward.Volume.Status")
    }

    @Test("A helper's own connection needs no place, no accept and no name")
    func adopted() throws {
        let fixture = try ControlFixture(Handler())
        var pair: [Int32] = [-1, -1]
        #expect(
            socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0, &pair) == 0)
        fixture.server.adopt(OwnedDescriptor(adopting: pair[0]))
        let helper = try ControlClient(
            adopting: OwnedDescriptor(adopting: pair[1]), name: "daemon", timeout: .seconds(60))
        #expect(try helper.lock() == "locking")
        // More clients than the table has places, each with a call under way.
        var crowd: [ControlClient] = []
        var busy: [Int32] = []
        for _ in 0..<ControlServer.maximumClients {
            let socket = try fixture.connect().release()
            _ = send(
                socket, #"{"method":"org.ward.Volume.Advance","parameters":{"seconds":1}}"# + "\0")
            busy.append(socket)
        }
        for _ in 0..<10 {
            if let client = try? ControlClient(socketPath: fixture.path) { crowd.append(client) }
        }
        unlink(fixture.path)
        #expect(try helper.lock() == "locking")
        try helper.report([LockTrigger(kind: .sleep, armed: true)])
        #expect(
            fixture.handler.triggers.withLock { $0 }
                == .array([LockTrigger(kind: .sleep, armed: true).json]))
        for socket in busy { close(socket) }
        _ = crowd
    }

    @Test("What helpers may say, nobody else can")
    func helperInterface() throws {
        let fixture = try ControlFixture(Handler())
        let client = try ControlClient(socketPath: fixture.path)
        do throws(ControlError) {
            try client.report([LockTrigger(kind: .sleep, armed: true)])
            Issue.record("a client was taken for a helper")
        } catch {
            guard case .varlink(let name, _) = error.code else {
                Issue.record("\(error)")
                return
            }
            #expect(name == "org.varlink.service.InterfaceNotFound")
        }
        #expect(fixture.handler.triggers.withLock { $0 } == nil)
    }

    @Test func callsAndErrors() throws {
        let fixture = try ControlFixture(Handler())
        let client = try ControlClient(socketPath: fixture.path)
        #expect(try client.lock() == "locking")
        let right = Array("right ü\"\\\n".utf8)
        let passcode = try makeSecret(right)
        #expect(try client.unlock(passcode: passcode) == "unlocked")
        #expect(fixture.handler.passcodes.withLock { $0 } == [right])
        let wrong = try SecretBytes(zeroed: 3)
        do throws(ControlError) {
            _ = try client.unlock(passcode: wrong)
            Issue.record("a wrong passcode opened it")
        } catch {
            #expect(error.code == .volume(.wrongPasscode(triesLeft: 9)))
        }
        #expect(fixture.handler.passcodes.withLock { $0.last } == [0, 0, 0])
    }

    @Test("an answer that comes late is never taken for the one to a later call")
    func lateAnswers() throws {
        var pair: [Int32] = [-1, -1]
        try #require(
            socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0, &pair) == 0)
        let far = OwnedDescriptor(adopting: pair[1])
        let client = try ControlClient(
            adopting: OwnedDescriptor(adopting: pair[0]), name: "test", timeout: .milliseconds(1))
        func answer(_ state: String) {
            #expect(send(far.rawValue, #"{"parameters":{"state":"\#(state)"}}"# + "\0"))
        }
        for _ in 0..<2 { #expect(throws: ControlError.self) { try client.lock(now: true) } }
        answer("locked")
        answer("unlocked")
        // Both answers belong to earlier calls; this call has no answer yet.
        #expect(throws: ControlError.self) { try client.lock(now: true) }
        #expect(throws: ControlError.self) { try client.lateLock() }
        answer("locking")
        #expect(try client.lateLock() == "locking")
        answer("beforeFirstUnlock")
        #expect(try client.lock(now: true) == "beforeFirstUnlock")
    }

    @Test func introspection() throws {
        let fixture = try ControlFixture(Handler())
        let client = try ControlClient(socketPath: fixture.path)
        let info = try client.call(qualified: "org.varlink.service.GetInfo")
        #expect(info["version"]?.stringValue == "1.2.3")
        #expect(info["interfaces"]?.arrayValue?.count == 2)
        let answer = try client.call(
            qualified: "org.varlink.service.GetInterfaceDescription",
            .object([("interface", .string("org.ward.Volume"))]))
        #expect(answer["description"]?.stringValue == VolumeInterface.description)
    }

    @Test(arguments: [
        ("org.ward.Volume.Nothing", "org.varlink.service.MethodNotFound"),
        ("org.ward.Other.Lock", "org.varlink.service.InterfaceNotFound"),
        ("Lock", "org.varlink.service.InterfaceNotFound"),
        ("org.ward.Volume.Monitor", "org.varlink.service.ExpectedMore"),
        ("org.varlink.service.GetInterfaceDescription", "org.varlink.service.InvalidParameter"),
    ])
    func standardErrors(_ method: String, _ name: String) throws {
        let fixture = try ControlFixture(Handler())
        let client = try ControlClient(socketPath: fixture.path)
        do throws(ControlError) {
            _ = try client.call(qualified: method)
            Issue.record("\(method) was answered")
        } catch {
            guard case .varlink(name, _) = error.code else {
                Issue.record("\(error.code)")
                return
            }
        }
    }

    @Test func pipelinedCallsAreAnsweredInOrder() throws {
        let fixture = try ControlFixture(Handler())
        let socket = try fixture.connect()
        let advance = #"{"method":"org.ward.Volume.Advance","parameters":{"seconds":1}}"# + "\0"
        let lock = #"{"method":"org.ward.Volume.Lock"}"# + "\0"
        #expect(send(socket.rawValue, advance + lock))
        // Another client is served meanwhile.
        #expect(try ControlClient(socketPath: fixture.path).lock() == "locking")
        #expect(
            comesTrue { !fixture.handler.held.withLock { $0.isEmpty } },
            "the first call comes to the handler")
        fixture.handler.held.withLock { $0.removeFirst() }.reply(
            .object([("state", .string("first"))]))
        #expect(receive(socket.rawValue) == #"{"parameters":{"state":"first"}}"#)
        #expect(receive(socket.rawValue) == #"{"parameters":{"state":"locking"}}"#)
    }

    @Test func onewayIsDoneAndNotAnswered() throws {
        let fixture = try ControlFixture(Handler())
        do {
            let socket = try fixture.connect()
            #expect(
                send(
                    socket.rawValue,
                    #"{"method":"org.ward.Volume.Unlock","parameters":{"passcode":"x"},"oneway":true}"#
                        + "\0" + #"{"method":"org.ward.Volume.Lock"}"# + "\0"))
            #expect(receive(socket.rawValue) == #"{"parameters":{"state":"locking"}}"#)
        }
        #expect(fixture.handler.passcodes.withLock { $0 } == [[0x78]])
    }

    @Test(
        "a client that sends no message is hung up on",
        arguments: [
            "\0", "garbage\0", "[]\0", "{}\0", "{\"method\":1}\0", "GET / HTTP/1.1\r\n\r\n\0",
        ])
    func garbage(_ text: String) throws {
        let fixture = try ControlFixture(Handler())
        let socket = try fixture.connect()
        #expect(send(socket.rawValue, text))
        #expect(receive(socket.rawValue) == nil)
        #expect(try ControlClient(socketPath: fixture.path).lock() == "locking")
    }

    @Test func anEndlessMessageIsCutOff() throws {
        let fixture = try ControlFixture(Handler())
        let socket = try fixture.connect()
        let megabyte = String(repeating: "x", count: 1 << 20)
        var sent = 0
        while sent < 100, send(socket.rawValue, megabyte) { sent += 1 }
        #expect(sent < 100, "100 MB were taken")
        #expect(try ControlClient(socketPath: fixture.path).lock() == "locking")
    }

    @Test func silentAndHalfMessagesKeepNobodyOut() throws {
        let fixture = try ControlFixture(Handler())
        var sockets: [Int32] = []
        defer { for socket in sockets { close(socket) } }
        for index in 0..<200 {
            let socket = try fixture.connect()
            if index % 2 == 0 { _ = send(socket.rawValue, #"{"method":"org.ward.Vol"#) }
            sockets.append(socket.release())
        }
        let client = try ControlClient(socketPath: fixture.path, timeout: .seconds(10))
        #expect(try client.lock() == "locking")
    }

    @Test("half messages that fill all the memory there is leave room for whoever asks for more")
    func largeHalvesKeepNobodyOut() throws {
        let fixture = try ControlFixture(Handler())
        var sockets: [Int32] = []
        defer { for socket in sockets { close(socket) } }
        let half =
            #"{"method":"org.ward.Volume.Lock","x":""# + String(repeating: "x", count: 60_000)
        for _ in 0..<40 {
            let socket = try fixture.connect()
            _ = send(socket.rawValue, half)
            sockets.append(socket.release())
        }
        let client = try ControlClient(socketPath: fixture.path, timeout: .seconds(30))
        #expect(try client.lock() == "locking")
        // A passcode of the greatest length, with every byte escaped.
        let passcode = try makeSecret([UInt8](repeating: 1, count: 1024))
        #expect(throws: ControlError.self) { _ = try client.unlock(passcode: passcode) }
        #expect(fixture.handler.passcodes.withLock { $0.last?.count } == 1024)
    }

    @Test("calls under way leave places for locks")
    func placesForLocks() throws {
        let fixture = try ControlFixture(Handler())
        var sockets: [Int32] = []
        defer { for socket in sockets { close(socket) } }
        var busy = 0
        for _ in 0..<70 {
            let socket = try fixture.connect()
            _ = send(
                socket.rawValue,
                #"{"method":"org.ward.Volume.Advance","parameters":{"seconds":1}}"# + "\0")
            sockets.append(socket.release())
        }
        func answered() -> [Int32] {
            sockets.filter {
                var waiting = pollfd(fd: $0, events: Int16(POLLIN), revents: 0)
                return poll(&waiting, 1, 0) > 0
            }
        }
        #expect(
            comesTrue { fixture.handler.held.withLock { $0.count } + answered().count == 70 },
            "each call is held or refused")
        for socket in answered() where receive(socket)?.contains("Busy") == true { busy += 1 }
        #expect(busy > 0 && fixture.handler.held.withLock { $0.count } == 56)
        for _ in 0..<3 {
            #expect(try ControlClient(socketPath: fixture.path).lock() == "locking")
        }
    }

    @Test("one client's thousand calls are not answered before another's first")
    func callsTakeTurns() throws {
        let fixture = try ControlFixture(Handler())
        let socket = try fixture.connect()
        let call = #"{"method":"org.ward.Volume.Status"}"# + "\0"
        #expect(send(socket.rawValue, String(repeating: call, count: 1500)))
        #expect(try ControlClient(socketPath: fixture.path).lock() == "locking")
        for _ in 0..<1500 { #expect(receive(socket.rawValue) != nil) }
    }

    @Test func aMonitorThatDoesNotReadIsDropped() throws {
        let fixture = try ControlFixture(Handler())
        let socket = try fixture.connect()
        #expect(send(socket.rawValue, #"{"method":"org.ward.Volume.Monitor","more":true}"# + "\0"))
        #expect(
            comesTrue { !fixture.handler.monitors.withLock { $0.isEmpty } },
            "the call comes to the handler")
        let call = fixture.handler.monitors.withLock { $0[0] }
        let event = ControlEvent(kind: .note, detail: String(repeating: "x", count: 10_000))
        var sent = 0
        while sent < 10_000, call.reply(.object([("event", event.json)]), continues: true) {
            sent += 1
            // The pace of a daemon: a client that reads would keep up with it.
            if sent % 10 == 0 { usleep(100) }
        }
        #expect(sent < 10_000, "100 MB of events were kept for nobody")
        #expect(try ControlClient(socketPath: fixture.path).lock() == "locking")
    }

    @Test func monitorStreamsUntilTheServerStops() throws {
        let fixture = try ControlFixture(Handler())
        let client = try ControlClient(socketPath: fixture.path)
        var details: [String] = []
        try client.monitor(last: 3) { notice in
            if case .event(let event) = notice { details.append(event.detail ?? "") }
            return details.count < 3
        }
        #expect(details == ["0", "1", "2"])
        let other = try ControlClient(socketPath: fixture.path)
        let (server, handler) = (fixture.server, fixture.handler)
        let stopping = SystemThread.start("stop") {
            // Waits until the other client's call has come.
            _ = comesTrue(within: 30) { handler.monitors.withLock { $0.count } == 2 }
            server.stop()
        }
        try other.monitor(last: 1) { _ in true }
        stopping.join()
    }

    @Test("without follow the last answer is the end, however few there are")
    func monitorEndsWithoutFollow() throws {
        let fixture = try ControlFixture(Handler())
        let client = try ControlClient(socketPath: fixture.path, timeout: .seconds(10))
        for last in [0, 2] {
            var notices: [ControlClient.Notice] = []
            try client.monitor(last: last, follow: false) {
                notices.append($0)
                return true
            }
            #expect(notices.count == last)
        }
        #expect(try client.lock() == "locking", "the connection goes on")
    }

    @Test func clientErrorsAreToldApart() throws {
        let fixture = try ControlFixture(Handler())
        func code(_ path: String) -> ControlError.Code? {
            do throws(ControlError) {
                _ = try ControlClient(socketPath: path)
                return nil
            } catch {
                return error.code
            }
        }
        #expect(code(fixture.directory + "/none.socket") == .noSocket)
        let dead = fixture.directory + "/dead.socket"
        _ = try ControlSocket.listen(at: dead)
        #expect(code(dead) == .refused)
        unlink(dead)
        let client = try ControlClient(socketPath: fixture.path)
        fixture.server.stop()
        do throws(ControlError) {
            _ = try client.lock()
        } catch {
            #expect(error.code == .connectionLost)
        }
        #expect(code(fixture.path) == .noSocket)
    }

    @Test func aLongPathWorks() throws {
        let fixture = try ControlFixture(Handler())
        let deep = fixture.directory + "/" + String(repeating: "d", count: 120)
        mkdir(deep, 0o700)
        defer { rmdir(deep) }
        let server = try ControlServer(
            socketPath: deep + "/a.socket", version: "1", handler: fixture.handler)
        #expect(try ControlClient(socketPath: deep + "/a.socket").lock() == "locking")
        server.stop()
    }

    @Test func theSocketIsPrivate() throws {
        let fixture = try ControlFixture(Handler())
        var status = FileStatus()
        #expect(lstat(fixture.path, &status) == 0)
        #expect(status.st_mode & 0o777 == 0o600)
    }
}
