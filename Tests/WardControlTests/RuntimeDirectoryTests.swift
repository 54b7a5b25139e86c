import Glibc
import Testing
import WardSystem

@testable import WardControl

@Suite struct RuntimeDirectoryTests {
    private final class Nobody: ControlHandler {
        func handle(_ method: ControlMethod, _ call: ControlCall) { call.reply() }
    }

    private func withDirectory(_ body: (RuntimeDirectory) throws -> Void) throws {
        var template = Array("/tmp/ward-runtime-test-XXXXXX".utf8CString)
        let base = String(cString: mkdtemp(&template))
        let directory = RuntimeDirectory(path: base + "/ward")
        defer {
            rmdir(directory.path)
            rmdir(base)
        }
        try directory.create()
        try body(directory)
    }

    private func volume(_ directory: RuntimeDirectory, _ uuid: String, pid: Int) -> MountedVolume {
        let name = MountedVolume.name(uuid: uuid, device: 7, pid: pid)
        return MountedVolume(
            uuid: uuid, volume: "/volumes/\(uuid)", mountpoint: "/mnt/\(uuid)", pid: pid,
            device: 7, socket: directory.socketPath(name))
    }

    private func serve(_ volume: MountedVolume) throws -> ControlServer {
        try ControlServer(socketPath: volume.socket, version: "1", handler: Nobody())
    }

    @Test("a record with a number that no process has is none", arguments: [0, -1, 1 << 31, .max])
    func impossibleProcess(_ pid: Int) {
        let record = MountedVolume(
            uuid: "u", volume: "/v", mountpoint: "/m", pid: pid, device: 1, socket: "/s")
        #expect(MountedVolume(json: record.json) == nil)
    }

    @Test func findsTheLivingAndForgetsTheDead() throws {
        try withDirectory { directory in
            #expect(directory.mounted().isEmpty)
            let alive = volume(directory, "alive", pid: Int(getpid()))
            let gone = volume(directory, "gone", pid: 0x3fff_ffff)
            let server = try serve(alive)
            defer { server.stop() }
            for record in [alive, gone] { try directory.record(record) }
            #expect(directory.mounted() == [alive])
            #expect(access(directory.recordPath(gone.name), F_OK) != 0)
            #expect(try directory.find("alive").record == alive)
            directory.forget(alive)
        }
    }

    @Test("two copies of one volume have a record each, and neither touches the other's")
    func copies() throws {
        try withDirectory { directory in
            var copy = volume(directory, "same", pid: Int(getpid()))
            let original = copy
            copy.device = 8
            copy.volume = "/volumes/copy"
            copy.socket = directory.socketPath(copy.name)
            let servers = [try serve(original), try serve(copy)]
            defer { for server in servers { server.stop() } }
            for record in [original, copy] { try directory.record(record) }
            #expect(directory.mounted() == [original, copy])
            directory.forget(copy)
            #expect(directory.mounted() == [original])
            #expect(access(original.socket, F_OK) == 0)
            directory.forget(original)
        }
    }

    @Test(
        "a record whose socket is gone stays while its process may live: numbers differ between namespaces"
    )
    func socketGone() throws {
        try withDirectory { directory in
            let record = volume(directory, "quiet", pid: Int(getpid()))
            try directory.record(record)
            #expect(directory.mounted().isEmpty)
            #expect(directory.recorded(record.name) == record)
            directory.forget(record)
        }
    }

    @Test("a record under another daemon's name is none")
    func otherName() throws {
        try withDirectory { directory in
            let record = volume(directory, "moved", pid: Int(getpid()))
            try directory.record(record)
            let other = directory.recordPath(record.name + "0")
            rename(directory.recordPath(record.name), other)
            #expect(directory.recorded(record.name + "0") == nil)
            unlink(other)
        }
    }

    @Test func saysWhyThereIsNone() throws {
        try withDirectory { directory in
            func code(_ path: String?) -> ControlError.Code? {
                do throws(ControlError) {
                    _ = try directory.find(path)
                    return nil
                } catch {
                    return error.code
                }
            }
            #expect(code("/") == .notInMount)
            #expect(code(directory.path + "/nothing") == .system(.noSuchFileOrDirectory))
        }
    }

    @Test func aDirectoryOfSomebodyElseIsRefused() throws {
        try withDirectory { directory in
            let link = RuntimeDirectory(path: directory.path + "-link")
            symlink(directory.path, link.path)
            defer { unlink(link.path) }
            #expect(throws: ControlError.self) { try link.create() }
            chmod(directory.path, 0o777)
            try directory.create()
            var status = FileStatus()
            lstat(directory.path, &status)
            #expect(status.st_mode & 0o777 == 0o700)
            let parent = PathBytes.parent(directory.path)
            chmod(parent, 0o777)
            #expect(throws: ControlError.self) { try directory.create() }
            chmod(parent, 0o700)
        }
    }

    @Test("a client takes the socket that its mount names, and no other that has its name")
    func endpoint() throws {
        try withDirectory { directory in
            let path = directory.socketPath("one")
            let server = try ControlServer(socketPath: path, version: "1", handler: Nobody())
            defer { server.stop() }
            let endpoint = ControlEndpoints(
                control: try ControlSocket.ownEndpoint(at: path), state: nil)
            _ = try ControlSocket.connect(to: endpoint)
            let moved = directory.socketPath("two")
            rename(path, moved)
            defer { unlink(moved) }
            let other = try ControlServer(socketPath: path, version: "1", handler: Nobody())
            defer { other.stop() }
            do throws(ControlError) {
                _ = try ControlSocket.connect(to: endpoint)
                Issue.record("another socket was taken")
            } catch {
                #expect(error.code == .replaced)
            }
        }
    }
}
