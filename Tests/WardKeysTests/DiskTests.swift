import Glibc
import Testing
import WardFormat
import WardSystem

@testable import WardKeys

@Suite("Keybags in real files")
struct DiskTests {
    @Test("what is made, with which modes, and nothing else")
    func files() throws {
        let disk = try DiskVolume(passcode: "1234")
        defer { disk.remove() }
        #expect(disk.names(disk.volume) == ["ward.keybag", "ward.keybag.copy"])
        let directory = StateDirectory(root: disk.state, volumeUUID: disk.parameters.uuid)
        #expect(directory.path == disk.state + "/" + disk.parameters.uuidString)
        let store = try disk.open()
        #expect(try store.failure(opening: "wrong") == .wrongPasscode(triesLeft: 9))
        #expect(
            disk.names(directory.path)
                == ["attempts", "device.key", "effaceable.key", "lock", "remembered"])
        #expect(try Syscall.stat(directory.path).st_mode & 0o777 == 0o700)
        for name in disk.names(directory.path) {
            #expect(try Syscall.stat(directory.path + "/" + name).st_mode & 0o777 == 0o600)
        }
    }

    @Test("round trip through changes, with new processes in between")
    func roundTrip() throws {
        let disk = try DiskVolume(passcode: nil)
        defer { disk.remove() }
        let keys = try disk.open().allKeys(nil)
        try disk.open().setPasscode(try passcode("1234"))
        try disk.open().changePasscode(try passcode("1234"), to: try passcode("pässword"))
        #expect(try disk.open().allKeys("pässword") == keys)
        #expect(try disk.open().failure(opening: "1234") == .wrongPasscode(triesLeft: 9))
        try disk.open().removePasscode(try passcode("pässword"))
        #expect(try disk.open().allKeys(nil) == keys)
        #expect(disk.names(disk.volume) == ["ward.keybag", "ward.keybag.copy"])
    }

    @Test("what can't be made a volume, and what is none")
    func errors() throws {
        let disk = try DiskVolume(passcode: nil)
        defer { disk.remove() }
        func create(_ volume: String, _ state: String) -> KeybagError.Code? {
            code { () throws(KeybagError) in
                _ = try KeybagStore.create(
                    volumePath: volume, stateRoot: state,
                    parameters: .init(uuid: SystemRandom.bytes(16), pageBytes: 4096),
                    passcode: nil, cost: .test, makeRoot: { _, _ in })
            }
        }
        #expect(create(disk.volume, disk.state) == .alreadyAVolume)
        let fresh = disk.root + "/fresh"
        mkdir(fresh, 0o755)
        defer { rmdir(fresh) }
        #expect(create(fresh, fresh + "/state") == .insideVolume)
        #expect(disk.names(fresh).isEmpty)
        for path in [fresh, disk.root + "/missing"] {
            #expect(
                code { () throws(KeybagError) in
                    _ = try KeybagStore(volumePath: path, stateRoot: disk.state)
                } == .notAVolume)
        }
        #expect(
            code { () throws(KeybagError) in
                _ = try KeybagStore(volumePath: disk.volume, stateRoot: disk.root + "/elsewhere")
            } == .noDeviceKey)
    }

    @Test("a keybag that is a link, a directory or a pipe is not followed, and does not hang")
    func oddFiles() throws {
        let disk = try DiskVolume(passcode: nil)
        defer { disk.remove() }
        let keybag = disk.volume + "/ward.keybag"
        let real = disk.root + "/real"
        rename(keybag, real)
        defer { unlink(real) }
        symlink(real, keybag)
        #expect(!(try disk.open().notes.isEmpty), "the copy opens, and the link was replaced")
        #expect(try Syscall.stat(real).st_size > 0, "what it pointed at was left alone")
        unlink(keybag)
        mkfifo(keybag, 0o600)
        #expect(!(try disk.open().notes.isEmpty))
        #expect(try disk.open().notes.isEmpty)
    }
}
