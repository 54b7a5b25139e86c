import WardCrypto
import WardKeys
import WardSystem

@testable import WardFormat

/// The keybag, recovery kits and the device's own files (docs/format-keybag.md). Each is read as it
/// comes, and again with the right checksum.
let keyParsers: [Parser] = [
    Parser(name: "keybag") { bytes in
        for bytes in [bytes, withChecksum(bytes)] {
            roundTrip(
                bytes, "a keybag", { (bytes) throws(FormatError) in try Keybag(reading: bytes) }
            ) { $0.serialized }
        }
    },
    Parser(name: "keybag-policy", maximumBytes: 64) { bytes in
        readPolicy(bytes)
    },
    Parser(name: "key-set", maximumBytes: 256) { bytes in
        let source = locked(bytes)
        guard
            let set = taken({ () throws(FormatError) in try KeybagKeySet(reading: source) })
        else { return }
        for contents: KeybagKeySet.Contents in [
            [.volumeKey, .classD, .passcodeClasses], [.volumeKey, .classD], .passcodeClasses,
            .hostClasses,
        ] where set.contains(contents) {
            guard let written = try? set.serialized(contents) else { continue }
            require(
                taken { () throws(FormatError) in try KeybagKeySet(reading: written) }?
                    .contains(contents) == true, "a set of keys loses some")
        }
    },
    Parser(name: "device-files") { bytes in
        for bytes in [bytes, withChecksum(bytes)] {
            roundTrip(
                bytes, "a generation",
                { (bytes) throws(FormatError) in try RememberedGeneration(reading: bytes) }
            ) { $0.serialized }
            roundTrip(
                bytes, "attempts",
                { (bytes) throws(FormatError) in try AttemptRecord(reading: bytes) }
            ) { $0.serialized }
            roundTrip(
                bytes, "trusted hosts",
                { (bytes) throws(FormatError) in try TrustedHostTable(reading: bytes) }
            ) { $0.serialized }
            readRecoveryRecord(bytes)
            readKeys(bytes)
        }
    },
    Parser(name: "recovery-kit") { bytes in
        readKit { () throws(FormatError) in try RecoveryKit(text: bytes) }
        readKit { () throws(FormatError) in try RecoveryKit(reading: withChecksum(bytes)) }
    },
    Parser(name: "recovery-code", maximumBytes: 256) { bytes in
        let typed = locked(bytes)
        guard let code = taken({ () throws(RecoveryCodeError) in try RecoveryCode(text: typed) })
        else {
            // The first bytes replace a group of the rest.
            let text = locked(Array(bytes.dropFirst(5)))
            _ = try? RecoveryCode.retyping(
                group: Int(bytes.first ?? 0), as: locked(Array(bytes.prefix(5))), in: text)
            return
        }
        guard let written = try? code.text(),
            let again = taken({ () throws(RecoveryCodeError) in try RecoveryCode(text: written) }),
            let second = try? again.text()
        else { fatalError("a recovery code can't be read again") }
        require(content(written) == content(second), "a recovery code changes")
    },
    Parser(name: "passcode", maximumBytes: 1100) { bytes in
        guard
            let passcode = taken({ () throws(PasscodeError) in try Passcode(utf8: locked(bytes)) })
        else { return }
        let once = passcode.withSecret { content($0) }
        require(!once.isEmpty && once.count <= Passcode.maximumBytes, "a passcode of that length")
        // Normalizing to NFC a second time changes nothing.
        let twice = taken { () throws(PasscodeError) in try Passcode(utf8: locked(once)) }
        guard let twice else { fatalError("a normalized passcode is refused") }
        require(twice.withSecret { content($0) } == once, "a passcode changes")
    },
]

/// The bytes with the right SHA-256 in their last 32 bytes.
private func withChecksum(_ bytes: [UInt8]) -> [UInt8] {
    KeybagEnvelope.seal(Array(bytes.dropLast(KeybagEnvelope.checksumBytes)))
}

private func content(_ secret: borrowing SecretBytes) -> [UInt8] {
    secret.withUnsafeBytes { [UInt8]($0) }
}

/// Checks that writing a value gives the bytes that were read: one value has one form.
private func roundTrip<T>(
    _ bytes: [UInt8], _ what: String, _ read: ([UInt8]) throws(FormatError) -> T,
    _ write: (T) -> [UInt8]
) {
    guard let value = taken({ () throws(FormatError) in try read(bytes) }) else { return }
    require(write(value) == bytes, "\(what) changes: \(value)")
}

/// Checks the limits. Compares policies and not bytes: reading shortens a longer period.
private func readPolicy(_ bytes: [UInt8]) {
    let policy = taken { () throws(FormatError) in try KeybagPolicy(reading: bytes) }
    guard let policy else { return }
    require(
        policy.gracePeriod <= KeybagPolicy.longestGracePeriod
            && policy.userInactivePeriod <= KeybagPolicy.longestUserInactivePeriod,
        "a policy beyond its limits: \(policy)")
    let again = taken { () throws(FormatError) in try KeybagPolicy(reading: policy.serialized) }
    require(again == policy, "a policy changes: \(policy)")
}

/// Compares the records and not the bytes: reading drops the kit's ID of an entry without a time.
private func readRecoveryRecord(_ bytes: [UInt8]) {
    let record = taken { () throws(FormatError) in try RecoveryRecord(reading: bytes) }
    guard let record else { return }
    let again = taken { () throws(FormatError) in
        try RecoveryRecord(reading: record.serialized)
    }
    require(again == record, "a recovery record changes: \(record)")
}

private func readKeys(_ bytes: [UInt8]) {
    let file = locked(bytes)
    for kind in [KeyFile.Kind.device, .effaceable] {
        let uuid = bytes.count >= 32 ? Array(bytes[16..<32]) : [UInt8](repeating: 0, count: 16)
        let count = taken { () throws(FormatError) in try KeyFile.check(file, kind, uuid: uuid) }
        guard let count else { continue }
        require(
            (1...2).contains(count) && KeyFile.keyRange(count - 1).upperBound + 32 == bytes.count,
            "\(count) keys in \(bytes.count) bytes")
    }
    let host = taken { () throws(FormatError) in try HostRecord(reading: file) }
    guard let host, let written = try? host.serialized() else { return }
    require(content(written) == bytes, "a host's record changes")
}

private func readKit(_ read: () throws(FormatError) -> RecoveryKit) {
    guard let kit = taken(read) else { return }
    let again = taken { () throws(FormatError) in try RecoveryKit(text: Array(kit.text.utf8)) }
    require(again == kit, "a recovery kit changes: \(kit)")
}
