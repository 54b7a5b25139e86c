import Glibc
import Synchronization
import WardCrypto
import WardFormat
import WardSystem

@testable import WardKeys

func secret(_ bytes: [UInt8]) throws -> SecretBytes {
    var result = try SecretBytes(zeroed: bytes.count)
    result.withUnsafeMutableBytes { $0.copyBytes(from: bytes) }
    return result
}

func passcode(_ text: String) throws -> Passcode {
    try Passcode(utf8: try secret(Array(text.utf8)))
}

extension SecretBytes {
    borrowing func exposed() -> [UInt8] { withUnsafeBytes { [UInt8]($0) } }
}

/// A clock that only the test moves.
final class TestClock: Sendable {
    private let time = Mutex(Duration.seconds(1000))
    var now: Duration { time.withLock { $0 } }
    func advance(_ by: Duration) { time.withLock { $0 += by } }
    func device(identity: UInt8 = 7) -> DeviceClock {
        DeviceClock(identity: [UInt8](repeating: identity, count: 16), now: { self.now })
    }
}

/// A volume on simulated storage.
struct SimulatedVolume {
    static let volume = "/ward-test-volume"
    static let state = "/ward-test-state"
    static let keybag = volume + "/" + Keybag.fileName
    static let copy = volume + "/" + Keybag.copyFileName

    let storage: SimulatedKeyStorage
    let directory: StateDirectory

    init(
        passcode: String?, cost: ScryptCost = .test, format: VolumeFormat = .ofNewVolumes
    ) throws {
        storage = SimulatedKeyStorage()
        let uuid = SystemRandom.bytes(16)
        directory = StateDirectory(root: SimulatedVolume.state, volumeUUID: uuid)
        var given: Passcode?
        if let passcode { given = try WardKeysTests.passcode(passcode) }
        _ = try KeybagStore.create(
            volumePath: SimulatedVolume.volume, stateRoot: SimulatedVolume.state,
            parameters: VolumeParameters(uuid: uuid, pageBytes: 4096), passcode: given,
            cost: cost, recoveryKitPath: nil, format: format, storage: storage)
    }

    func open(
        _ storage: SimulatedKeyStorage? = nil, clock: DeviceClock = .system,
        acceptsOlderGeneration: Bool = false
    ) throws(KeybagError) -> KeybagStore {
        try KeybagStore(
            volumePath: SimulatedVolume.volume, stateRoot: SimulatedVolume.state, clock: clock,
            acceptsOlderGeneration: acceptsOlderGeneration, storage: storage ?? self.storage)
    }
}

extension KeybagStore {
    /// The cost of a guess at the passcode; nil without a passcode.
    var cost: Scrypt.Parameters? { published.withLock { $0.keybag.passcodeSlot?.derivation?.cost } }

    /// The error's code, or nil if the passcode opens.
    func failure(opening text: String) throws -> KeybagError.Code? {
        let keyring = ClassKeyring(classBPublicKey: classBPublicKey)
        let given = try passcode(text)
        do throws(KeybagError) {
            try openPasscodeSlot(given, into: keyring)
            return keyring.available == [.a, .b, .c, .cx] ? nil : .damaged
        } catch {
            return error.code
        }
    }

    /// The classes that the device slot alone opens.
    func deviceClasses() throws -> ProtectionClassSet {
        let keyring = ClassKeyring(classBPublicKey: classBPublicKey)
        _ = try openDeviceSlot(into: keyring)
        return keyring.available
    }

    /// All keys of the volume, for comparison: volume key, then A, B, C, D, CX.
    func allKeys(_ text: String?) throws -> [[UInt8]] {
        let keyring = ClassKeyring(classBPublicKey: classBPublicKey)
        let volumeKey = try openDeviceSlot(into: keyring).exposed()
        if let text { try openPasscodeSlot(try passcode(text), into: keyring) }
        return try [volumeKey]
            + ProtectionClass.allCases.map { try keyring.withKey(of: $0) { $0.exposed() } }
    }
}
