import Foundation
import WardCrypto
import WardFormat
import WardSystem

@testable import WardKeys
@testable import WardVolume

/// All secrets of a test's volume, computed from the files on disk and the passcode, as an attacker
/// with everything could.
struct VolumeSecrets {
    let passcode: String
    private(set) var stretched: [UInt8] = []
    private(set) var entangled: [UInt8] = []
    private(set) var passcodeKEK: [UInt8] = []
    private(set) var classKeys: [FileClass: [UInt8]] = [:]
    private(set) var volumeKey: [UInt8] = []
    private let classBPublicKey: [UInt8]
    private let effaceable: [UInt8]
    private let deviceSecret: [UInt8]
    private let deviceKEK: [UInt8]

    /// With a wrong `passcode` only D's class key is there.
    init(_ volume: MountedVolume, passcode: String) throws {
        self.passcode = passcode
        let keybag = try Keybag(
            reading: [UInt8](
                Data(contentsOf: URL(fileURLWithPath: volume.volume + "/ward.keybag"))))
        let identity = keybag.identity
        classBPublicKey = identity.classBPublicKey
        let context = KeybagContext(
            volumePath: volume.volume, stateRoot: volume.stateDirectory + "/ward",
            uuid: identity.parameters.uuid, storage: DiskKeyStorage(), clock: .system)
        guard let effaceableKey = try context.effaceable.key(0) else {
            throw SupportError("no effaceable key")
        }
        effaceable = Self.bytes(effaceableKey)
        let device = try context.hierarchy.deviceSecret(effaceable: effaceableKey)
        deviceSecret = Self.bytes(device)
        let deviceKey = try context.hierarchy.deviceKEK(device)
        deviceKEK = Self.bytes(deviceKey)
        if let set = try context.open(keybag.deviceSlot, of: keybag, kek: deviceKey) {
            take(set)
            if let key = try set.volumeKey() { volumeKey = Self.bytes(key) }
        }
        guard let slot = keybag.passcodeSlot, let derivation = slot.derivation else { return }
        let typed = try Passcode(utf8: try Self.secret(Array(passcode.utf8)))
        let output = try context.hierarchy.stretch(typed, derivation)
        stretched = Self.bytes(output)
        let bound = try context.hierarchy.entangled(output, effaceable: effaceableKey)
        entangled = Self.bytes(bound)
        let kek = try context.hierarchy.passcodeKEK(bound)
        passcodeKEK = Self.bytes(kek)
        if let set = try context.open(slot, of: keybag, kek: kek) { take(set) }
    }

    private mutating func take(_ set: borrowing KeybagKeySet) {
        for fileClass in FileClass.allCases {
            if let key = try? set.key(of: ProtectionClass(fileClass)) {
                classKeys[fileClass] = Self.bytes(key)
            }
        }
    }

    /// The key of a file in the mount, from the header of its backing file, which has the same
    /// inode number.
    func fileKey(_ probe: Probe, _ path: String, in volume: MountedVolume) throws -> FileKey {
        let inode = probe.stat(path, "ino").text
        let found = try Child.run(
            ["find", volume.volume, "-inum", inode], environment: volume.environment)
        let backing = found.output.trimmingCharacters(in: .newlines)
        guard let file = FileHandle(forReadingAtPath: backing) else {
            throw SupportError("no backing file of \(path): '\(backing)'")
        }
        defer { try? file.close() }
        let header = [UInt8](file.readData(ofLength: FileHeader.bytes))
        guard header.count == FileHeader.bytes, let value = ProtectionClass(rawValue: header[12]),
            let fileClass = FileClass.allCases.first(where: { ProtectionClass($0) == value }),
            let classKey = classKeys[fileClass]
        else { throw SupportError("no header of \(path)") }
        let wrapped = Array(header[48..<48 + Int(header[14])])
        let keyring = ClassKeyring(classBPublicKey: classBPublicKey)
        keyring.install(try Self.secret(classKey), for: value)
        let keys = try VolumeKeys(volumeKey: try Self.secret(volumeKey), format: .version2)
        keyring.bindClassB(to: try keys.classB.copy())
        if let classA = classKeys[.complete] {
            keyring.install(try Self.secret(classA), for: .complete)
        }
        let id = Array(header[FileHeader.capsuleOffset..<FileHeader.capsuleEnd])
        let capsule =
            id == Capsule.noID
            ? nil
            : try Capsule(
                reading: [UInt8](
                    Data(
                        contentsOf: URL(
                            fileURLWithPath: volume.volume + "/" + Capsule.directoryName + "/"
                                + Capsule.fileName(id)))), id: id)
        let key = try wrapped.withUnsafeBytes {
            Self.bytes(try keyring.unwrap($0, for: value, capsule: capsule))
        }
        guard fileClass == .completeUnlessOpen else { return FileKey(key: key) }
        let ephemeral = Array(wrapped[..<32])
        let shared = try X25519.sharedSecret(try Self.secret(classKey), ephemeral)
        return FileKey(key: key, sharedSecret: Self.bytes(shared))
    }

    struct FileKey {
        let key: [UInt8]
        /// Class B only: that of X25519.
        var sharedSecret: [UInt8]?

        /// Everything that leads to the file's content, except the class key.
        func add(to patterns: inout SecretPatterns, as name: String) {
            patterns.add(aes: "key of \(name)", key)
            if let sharedSecret { patterns.add(curve: "shared secret of \(name)", sharedSecret) }
        }
    }

    // MARK: Patterns

    /// Secrets that no memory may hold after an unlock: the passcode and what is derived from it.
    var ofPasscode: SecretPatterns {
        var patterns = SecretPatterns()
        patterns.add(text: "passcode", passcode)
        patterns.add("stretched passcode", stretched)
        patterns.add("entangled passcode", entangled)
        patterns.add(aes: "passcode KEK", passcodeKEK)
        return patterns
    }

    /// The keys that open the device slot; needed only while it is opened.
    var ofDevice: SecretPatterns {
        var patterns = SecretPatterns()
        patterns.add("effaceable key", effaceable)
        patterns.add("device secret", deviceSecret)
        patterns.add(aes: "device KEK", deviceKEK)
        return patterns
    }

    func ofClasses(_ classes: [FileClass]) -> SecretPatterns {
        var patterns = SecretPatterns()
        for fileClass in classes {
            guard let key = classKeys[fileClass] else { continue }
            let name = "class key \(fileClass.letter)"
            if fileClass == .completeUnlessOpen {
                patterns.add(name, key)
            } else {
                patterns.add(aes: name, key)
            }
        }
        return patterns
    }

    private static func bytes(_ secret: borrowing SecretBytes) -> [UInt8] {
        secret.withUnsafeBytes { Array($0) }
    }

    private static func secret(_ bytes: [UInt8]) throws -> SecretBytes {
        var secret = try SecretBytes(zeroed: bytes.count)
        secret.withUnsafeMutableBytes { $0.copyBytes(from: bytes) }
        return secret
    }
}

extension ProtectionClass {
    init(_ fileClass: FileClass) {
        switch fileClass {
        case .complete: self = .complete
        case .completeUnlessOpen: self = .completeUnlessOpen
        case .completeUntilFirstUserAuthentication: self = .completeUntilFirstUserAuthentication
        case .none: self = .none
        case .completeWhenUserInactive: self = .completeWhenUserInactive
        }
    }
}
