import Foundation
import Testing
import WardCrypto
import WardSystem
import WardTrustedHosts

@testable import WardFormat
@testable import WardKeys

/// Trusted hosts of Tests/Vectors: the device's file, the host's record, and both together.
@Suite struct HostVectorTests {
    @Test func trustedHosts() throws {
        let file = try VectorFile("trusted-hosts")
        let device = try Device(file.common)
        for vector in file.vectors {
            let bytes = try vector.bytes()
            let found = try Reading.of {
                let table = try TrustedHostTable(reading: bytes)
                guard table.uuid == device.uuid else {
                    throw FormatError(.malformed, "another volume's")
                }
                guard
                    HMACSHA256.authenticate(table.authenticated, key: device.hostsMAC) == table.mac
                else { throw FormatError(.authenticationFailed, "trusted hosts") }
                #expect(table.serialized == bytes, "\(vector.name), written")
                return ["\(table.latestTime)"]
                    + table.hosts.map {
                        "\($0.hostID) \($0.name) \($0.made) \($0.lastUsed) \($0.sealed)"
                    }
            }
            let wanted = try Reading.wanted(by: vector) {
                ["\(try vector.unsigned("latestTime"))"]
                    + (try vector.parts("hosts").map {
                        """
                        \(try $0.bytes("hostID")) \(try $0.text("name")) \(try $0.unsigned("made")) \
                        \(try $0.unsigned("lastUsed")) \(try $0.bytes("sealed"))
                        """
                    })
            }
            #expect(found == wanted, "\(vector.name)")
            try expectLoading(vector, device)
        }
    }

    /// Loads the file from a disk: a file that holds no host is removed, a newer one is left alone.
    private func expectLoading(_ vector: Vector, _ device: Device) throws {
        let base = NSTemporaryDirectory() + "ward-vectors-" + UUID().uuidString
        defer { try? FileManager.default.removeItem(atPath: base) }
        try FileManager.default.createDirectory(atPath: base, withIntermediateDirectories: true)
        let path = base + "/trusted-hosts"
        let bytes = try vector.bytes()
        try Data(bytes).write(to: URL(fileURLWithPath: path))
        let file = TrustedHostFile(path: path, uuid: device.uuid, storage: DiskKeyStorage())
        do throws(KeybagError) {
            let loaded = try file.load(macKey: device.hostsMAC)
            #expect((loaded.table == nil) == (vector.error != nil), "\(vector.name)")
            #expect(vector.error != "newer version", "\(vector.name)")
        } catch {
            #expect(error.code == .newerVersion, "\(vector.name)")
            #expect(vector.error == "newer version", "\(vector.name)")
        }
        let stays = vector.error == nil || vector.error == "newer version"
        let left = FileManager.default.contents(atPath: path).map { [UInt8]($0) }
        #expect(left == (stays ? bytes : nil), "\(vector.name)")
    }

    @Test func hostOpenings() throws {
        let file = try VectorFile("host-openings")
        let uuid = try file.common.bytes("uuid")
        let clock = DeviceClock(identity: try file.common.bytes("boot"), now: { .seconds(1000) })
        for vector in file.vectors {
            let base = NSTemporaryDirectory() + "ward-vectors-" + UUID().uuidString
            defer { try? FileManager.default.removeItem(atPath: base) }
            let state = StateDirectory(root: base + "/state", volumeUUID: uuid)
            try VectorFile.plant(try file.common.files("volume"), in: base + "/volume")
            try VectorFile.plant(try file.common.files("state"), in: state.path)
            try VectorFile.plant(
                ["trusted-hosts": try vector.bytes("trustedHosts")], in: state.path)
            let store = try KeybagStore(
                volumePath: base + "/volume", stateRoot: base + "/state", clock: clock)
            let keyring = ClassKeyring(classBPublicKey: store.classBPublicKey)
            keyring.install(
                try secret(try file.common.bytes("classCKey")),
                for: .completeUntilFirstUserAuthentication)
            let target = ClassKeyring(classBPublicKey: store.classBPublicKey)
            var failure: String?
            do {
                try store.openTrustedHost(
                    try vector.bytes("hostID"), secret: try secret(try vector.bytes("secret")),
                    keyring: keyring, into: target, at: try vector.unsigned("now"))
            } catch let error as KeybagError {
                failure = VectorFile.name(of: error)
            }
            #expect(failure == vector.error, "\(vector.name)")
            var found: [Int: [UInt8]] = [:]
            for protectionClass in target.available.classes {
                found[Int(protectionClass.rawValue)] = try target.withKey(of: protectionClass) {
                    $0.exposed()
                }
            }
            #expect(
                try found == (vector.error == nil ? vector.keys("keys") : [:]), "\(vector.name)")
        }
    }

    @Test func hostRecords() throws {
        for vector in try VectorFile("host-records").vectors {
            let bytes = try vector.bytes()
            let found = try Reading.of {
                let record = try HostRecord(reading: try secret(bytes))
                #expect(try record.serialized().exposed() == bytes, "\(vector.name), written")
                return [
                    "\(record.volumeUUID)", "\(record.hostID)", "\(record.secret.exposed())",
                ]
            }
            let wanted = try Reading.wanted(by: vector) {
                try ["uuid", "hostID", "secret"].map { "\(try vector.bytes($0))" }
            }
            #expect(found == wanted, "\(vector.name)")
        }
    }
}

/// The device's keys that all vectors share.
private final class Device {
    let uuid: [UInt8]
    let hostsMAC: SecretBytes

    init(_ common: Vector) throws {
        let provider = GivenDeviceKey(key: try common.bytes("deviceKey"))
        uuid = try common.bytes("uuid")
        let hierarchy = KeyHierarchy(device: provider, uuid: uuid, path: "vectors")
        let effaceable = try secret(try common.bytes("effaceableKey"))
        hostsMAC = try hierarchy.hostsMACKey(try hierarchy.deviceSecret(effaceable: effaceable))
    }
}

private struct GivenDeviceKey: DeviceKeyProvider {
    let key: [UInt8]

    func entangle(
        _ secret: borrowing SecretBytes, purpose: String
    ) throws(KeybagError) -> SecretBytes {
        do {
            return try HMACSHA256.derive(
                try FormatVectorTests.secret(Array(purpose.utf8) + [0] + secret.exposed()),
                key: try FormatVectorTests.secret(key))
        } catch {
            throw .noLockedMemory("vectors")
        }
    }
}
