import Foundation
import Testing

extension MountSuite {
    /// Clients of other authors at the control socket.
    @Suite struct VarlinkTests {
        @Test(
            "PyPI's varlink: status, lock, unlock, Monitor, errors, unmount",
            arguments: User.usual)
        func python(user: User) throws {
            let volume = try MountedVolume(as: user)
            let packages =
                String(#filePath.dropLast("Tests/WardMountTests/Programs/VarlinkTests.swift".count))
                + ".build-python"
            try #require(
                access(packages + "/varlink/__init__.py", R_OK) == 0,
                "the Python package varlink is not there: run `scripts/setup test`")
            // A copy where an ordinary user can read it.
            let copy = volume.directory + "/home/packages"
            try FileManager.default.copyItem(atPath: packages, toPath: copy)
            let environment = TestEnvironment.shared
            let socket = try #require(volume.socketPath())
            let done = try Child.run(
                user.prefix + [
                    environment.python, environment.script("varlink_client.py"), copy, socket,
                    volume.passcodeFile,
                ], environment: volume.environment, seconds: 60)
            #expect(done.succeeded, "\(done.everything)")
            let expected = """
                interfaces org.varlink.service org.ward.Volume
                described True
                status unlocked
                lock locking
                advance locked
                available C D CX
                wrong passcode WrongPasscode
                unlock unlocked
                lock now locked
                unlock unlocked
                reboot beforeFirstUnlock
                unlock unlocked
                set again PasscodeAlreadySet
                remove with a wrong one WrongPasscode
                events willBecomeUnavailable locked didBecomeAvailable willBecomeUnavailable locked \
                didBecomeAvailable reboot firstUnlock didBecomeAvailable
                unmounted

                """
            #expect(done.output == expected, "\(done.output)")
            #expect(
                comesTrue(within: 60) { volume.record() == nil },
                "the record is removed at unmount")
        }

        @Test("The socket is its owner's alone", arguments: User.usual)
        func permissions(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            let socket = try #require(volume.socketPath())
            #expect(probe.stat(socket, "mode") == .data("600"))
            #expect(
                probe.stat((socket as NSString).deletingLastPathComponent, "mode") == .data("700"))
            #expect(probe.getxattr("", "user.ward.socket") == .data(socket))
            #expect(probe.writeFile("f", "x") == .ok)
            #expect(probe.getxattr("f", "user.ward.socket") == .data(socket))
            let uuid = try #require(volume.record()?["uuid"] as? String)
            #expect(probe.getxattr("f", "user.ward.volume") == .data(uuid))
            if geteuid() == 0 && user == .root {
                let stranger = try Child.run(
                    User.ordinaryUser.prefix + [
                        TestEnvironment.shared.python, TestEnvironment.shared.script("events.py"),
                        socket,
                    ], environment: volume.environment)
                #expect(!stranger.succeeded)
            }
        }

        @Test("A client that talks nonsense harms nobody", arguments: User.usual)
        func nonsense(user: User) throws {
            let volume = try MountedVolume(as: user)
            let socket = try #require(volume.socketPath())
            try volume.shell(
                """
                \(TestEnvironment.shared.python) - '\(socket)' <<'PYTHON'
                import os, socket, sys
                pieces = [
                    b"\\0", b"{}\\0", b"[]\\0", b"null\\0", b"{\\"method\\":7}\\0", b"\\xff\\xfe\\0",
                    b"{\\"method\\":\\"org.ward.Volume.Nothing\\"}\\0", b"{\\"method\\":\\"x\\"}\\0",
                    b"{\\"method\\":\\"org.ward.Volume.Unlock\\",\\"parameters\\":{\\"passcode\\":7}}\\0",
                    b"{\\"method\\":\\"org.ward.Volume.Unlock\\",\\"parameters\\":{\\"passcode\\":\\"",
                    b"{\\"method\\":\\"org.ward.Volume.Advance\\",\\"parameters\\":{\\"seconds\\":-1e300}}\\0",
                    b"{\\"method\\":\\"org.ward.Volume.Advance\\",\\"parameters\\":{\\"seconds\\":1e300}}\\0",
                    b"{" * 100000 + b"\\0", b"x" * 5_000_000, os.urandom(100000),
                ]
                for piece in pieces:
                    channel = socket.socket(socket.AF_UNIX)
                    channel.settimeout(3)
                    channel.connect(sys.argv[1])
                    try:
                        channel.sendall(piece)
                        channel.shutdown(socket.SHUT_WR)
                        while channel.recv(65536):
                            pass
                    except OSError:
                        pass
                PYTHON
                """)
            #expect(try volume.ward("status", volume.mountPoint).succeeded)
            #expect(try volume.probe().writeFile("f", "still served") == .ok)
        }
    }
}
