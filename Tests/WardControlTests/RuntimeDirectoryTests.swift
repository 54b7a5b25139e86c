import Glibc
import Testing
import WardSystem

@testable import WardControl

@Suite struct RuntimeDirectoryTests {
    private final class Nobody: ControlHandler {
        func handle(_ call: ControlCall) { call.reply() }
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
        MountedVolume(
            uuid: uuid, volume: "/volumes/\(uuid)", mountpoint: "/mnt/\(uuid)", pid: pid,
            socket: directory.socketPath(uuid: uuid))
    }

    @Test("a record with a number that no process has is none", arguments: [0, -1, 1 << 31, .max])
    func impossibleProcess(_ pid: Int) {
        let record = MountedVolume(
            uuid: "u", volume: "/v", mountpoint: "/m", pid: pid, socket: "/s")
        #expect(MountedVolume(json: record.json) == nil)
    }

    @Test func findsTheLivingAndForgetsTheDead() throws {
        try withDirectory { directory in
            #expect(directory.mounted().isEmpty)
            // Alive, gone, and a number that belongs to another process by now.
            let server = try ControlServer(
                socketPath: directory.socketPath(uuid: "alive"), version: "1", handler: Nobody())
            defer { server.stop() }
            try directory.record(volume(directory, "alive", pid: Int(getpid())))
            try directory.record(volume(directory, "gone", pid: 0x3fff_ffff))
            try directory.record(volume(directory, "other", pid: 1))
            #expect(directory.mounted().map(\.uuid) == ["alive"])
            #expect(access(directory.recordPath(uuid: "gone"), F_OK) != 0)
            #expect(access(directory.recordPath(uuid: "other"), F_OK) != 0)
            #expect(try directory.socket(for: nil) == directory.socketPath(uuid: "alive"))
            #expect(try directory.socket(for: "alive") == directory.socketPath(uuid: "alive"))
            directory.forget(uuid: "alive")
        }
    }

    @Test func leavesASuccessorWhatADeadDaemonHad() throws {
        try withDirectory { directory in
            try directory.record(volume(directory, "again", pid: 0x3fff_ffff))
            // The next daemon listens, and has not written its record yet.
            let server = try ControlServer(
                socketPath: directory.socketPath(uuid: "again"), version: "1", handler: Nobody())
            defer { server.stop() }
            #expect(directory.mounted().isEmpty)
            #expect(access(directory.socketPath(uuid: "again"), F_OK) == 0)
            try directory.record(volume(directory, "again", pid: Int(getpid())))
            #expect(directory.mounted().map(\.uuid) == ["again"])
            directory.forget(uuid: "again")
        }
    }

    @Test func saysWhyThereIsNone() throws {
        try withDirectory { directory in
            func code(_ path: String?) -> ControlError.Code? {
                do throws(ControlError) {
                    _ = try directory.socket(for: path)
                    return nil
                } catch {
                    return error.code
                }
            }
            #expect(code(nil) == .noneMounted)
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
        }
    }
}
