import Foundation
import Glibc
import Synchronization
import Testing
import WardCrypto
import WardFormat
import WardKeys
import WardSystem

import func WardTestSupport.comesTrue

@testable import WardDaemon
@testable import WardVolume

@Suite struct MaintenanceTests {
    @Test(
        "After a change that was left half-done the next durable point starts a pass over what is in doubt"
    )
    func mendsAfterADurablePoint() throws {
        let path = try TemporaryDirectory.make("ward-maintenance", in: TemporaryDirectory.parent())
        defer { try? FileManager.default.removeItem(atPath: path) }
        let parameters = VolumeParameters(uuid: SystemRandom.bytes(16), pageBytes: 4096)
        let volumeKey = try SecretBytes(random: 32)
        try Volume.create(
            backingPath: path, parameters: parameters, volumeKey: volumeKey, defaultClass: .none)
        let keyring = ClassKeyring(
            classBPublicKey: X25519.publicKey(of: try SecretBytes(random: 32)))
        for protectionClass in ProtectionClass.allCases {
            keyring.install(try SecretBytes(random: 32), for: protectionClass)
        }
        let volume = try Volume(
            backingPath: path, parameters: parameters, volumeKey: volumeKey, keyring: keyring,
            readOnly: false, observer: nil)
        var options = MountOptions(volumePath: path, mountPoint: path)
        options.stateRoot = path
        options.runtimeDirectory = path
        options.logPath = "/dev/null"
        let log = try LogWriter(options, fallbackPath: "/dev/null")
        let maintenance = Maintenance(volume: volume, log: log)
        defer { maintenance.stop() }
        let context = WorkerContext(volume: volume)
        let name = Array("file".utf8)
        let made = try name.withUnsafeBytes {
            try volume.create(
                1, $0, mode: 0o600, umask: 0, flags: O_RDWR, caller: .volume, context)
        }
        volume.noteHalfDone(made.file.handle.object(as: FileHandle.self).file)
        volume.release(made.file.handle, context)
        #expect(volume.isInDoubt)
        let done = WakeWord()
        maintenance.makeDurable { _ in done.signal() }
        done.wait(timeout: .seconds(60))
        // The repair of doubtful files runs on another thread.
        #expect(comesTrue(within: 60) { !volume.isInDoubt }, "the doubtful file is repaired")
        #expect(!volume.needsMending)
    }
}
