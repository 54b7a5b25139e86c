import Foundation
import Testing
import WardCrypto
import WardSystem

@testable import WardFormat
@testable import WardKeys

/// Keybags, the device's files and recovery kits of Tests/Vectors.
@Suite struct KeyVectorTests {
    @Test func keybags() throws {
        for vector in try VectorFile("keybags").vectors {
            let bytes = try vector.bytes()
            let found = try Reading.of {
                let keybag = try Keybag(reading: bytes)
                #expect(keybag.serialized == bytes, "\(vector.name), written")
                var fields = [
                    "\(keybag.format.rawValue)",
                    "\(keybag.generation)", "\(keybag.identity.parameters.pageBytes)",
                    "\(keybag.identity.parameters.uuid)", "\(keybag.identity.classBPublicKey)",
                ]
                if let derivation = keybag.passcodeSlot?.derivation {
                    fields += [
                        "\(derivation.cost.n) \(derivation.cost.r) \(derivation.cost.p)",
                        "\(derivation.salt)",
                    ]
                }
                return fields
            }
            let wanted = try Reading.wanted(by: vector) {
                var fields = [
                    "\(vector.has("version") ? try vector.number("version") : 1)",
                    "\(try vector.number("generation"))", "\(try vector.number("pageBytes"))",
                    "\(try vector.bytes("uuid"))", "\(try vector.bytes("classBPublicKey"))",
                ]
                if try vector.number("slots") == 2 {
                    fields += [
                        "\(1 << (try vector.number("logN"))) \(try vector.number("r")) \(try vector.number("p"))",
                        "\(try vector.bytes("salt"))",
                    ]
                }
                return fields
            }
            #expect(found == wanted, "\(vector.name)")
        }
    }

    @Test func deviceFiles() throws {
        let file = try VectorFile("device-files")
        let uuid = try file.common.bytes("uuid")
        let deviceKey = try secret(try file.common.bytes("deviceKey"))
        for vector in file.vectors {
            let name = "\(try vector.text("file")): \(vector.name)"
            let bytes = try vector.bytes()
            let found = try Reading.of {
                switch try vector.text("file") {
                case "remembered":
                    let record = try RememberedGeneration(reading: bytes)
                    #expect(record.serialized == bytes, "\(name), written")
                    return ["\(record.generation)"]
                case "recovery":
                    let record = try RecoveryRecord(reading: bytes)
                    let mac = HMACSHA256.authenticate(
                        Array("ward recovery kits v1".utf8) + [0] + record.authenticated,
                        key: deviceKey)
                    guard mac == record.mac else {
                        throw FormatError(.authenticationFailed, "recovery record")
                    }
                    #expect(record.serialized == bytes, "\(name), written")
                    return [record.made, record.verified].map {
                        "\($0?.time ?? 0) \($0?.kitID ?? [UInt8](repeating: 0, count: 16))"
                    }
                case "attempts":
                    let record = try AttemptRecord(reading: bytes)
                    let mac = HMACSHA256.authenticate(
                        Array("ward attempts v1".utf8) + [0] + record.authenticated, key: deviceKey)
                    guard mac == record.mac else {
                        throw FormatError(.authenticationFailed, "attempts")
                    }
                    #expect(record.serialized == bytes, "\(name), written")
                    return [
                        "\(record.wrongPasscodes)", "\(record.tags)", "\(!record.lastIsPending)",
                    ]
                case let kind:
                    let kind = kind == "device.key" ? KeyFile.Kind.device : .effaceable
                    let count = try KeyFile.check(try secret(bytes), kind, uuid: uuid)
                    return (0..<count).map { "\([UInt8](bytes[KeyFile.keyRange($0)]))" }
                }
            }
            let wanted = try Reading.wanted(by: vector) {
                switch try vector.text("file") {
                case "remembered": ["\(try vector.unsigned("generation"))"]
                case "recovery":
                    [
                        "\(try vector.number("made")) \(try vector.bytes("kitMade"))",
                        "\(try vector.number("opened")) \(try vector.bytes("kitOpened"))",
                    ]
                case "attempts":
                    [
                        "\(try vector.number("wrong"))",
                        "\(try vector.texts("tags").map { try Vector.bytes($0) })",
                        "\(try vector.flag("judged"))",
                    ]
                default: try vector.texts("keys").map { "\(try Vector.bytes($0))" }
                }
            }
            #expect(found == wanted, "\(name)")
        }
    }

    @Test func keybagOpenings() throws {
        let file = try VectorFile("keybag-openings")
        let uuid = try file.common.bytes("uuid")
        let clock = DeviceClock(identity: try file.common.bytes("boot"), now: { .seconds(1000) })
        for vector in file.vectors {
            let base = NSTemporaryDirectory() + "ward-vectors-" + UUID().uuidString
            defer { try? FileManager.default.removeItem(atPath: base) }
            let state = StateDirectory(root: base + "/state", volumeUUID: uuid)
            try VectorFile.plant(try vector.files("volume"), in: base + "/volume")
            try VectorFile.plant(try vector.files("state"), in: state.path)
            let passcode = vector.has("passcode") ? try vector.text("passcode") : nil
            var found: [Int: [UInt8]] = [:]
            var failure: String?
            var isForged = false
            do throws(KeybagError) {
                let store = try KeybagStore(
                    volumePath: base + "/volume", stateRoot: base + "/state", clock: clock)
                found = try keys(store, passcode)
                isForged = store.isPolicyForged
            } catch {
                failure = VectorFile.name(of: error)
            }
            #expect(failure == vector.error, "\(vector.name)")
            if vector.error == nil {
                #expect(try found == vector.keys("keys"), "\(vector.name)")
            }
            let wanted = vector.has("policyForged") ? try vector.flag("policyForged") : false
            #expect(isForged == wanted, "\(vector.name)")
            if vector.has("tag"), let passcode {
                let store = try KeybagStore(
                    volumePath: base + "/volume", stateRoot: base + "/state", clock: clock)
                #expect(try tag(store, passcode) == vector.bytes("tag"), "\(vector.name)")
            }
        }
    }

    /// The tag of a passcode, had the slot refused it.
    private func tag(_ store: KeybagStore, _ passcode: String) throws -> [UInt8] {
        let keybag = store.published.withLock { $0.keybag }
        let slot = try #require(keybag.passcodeSlot)
        let hierarchy = store.context.hierarchy
        let given = try Passcode(utf8: try secret(Array(passcode.utf8)))
        let stretched = try hierarchy.stretch(given, try #require(slot.derivation))
        let entangled = try hierarchy.entangled(
            stretched, effaceable: try store.currentEffaceable(of: keybag))
        let tag = try hierarchy.wrongPasscodeTag(entangled, slot, of: keybag)
        return Array(tag.exposed()[..<AttemptRecord.tagBytes])
    }

    private func keys(
        _ store: KeybagStore, _ passcode: String?
    ) throws(KeybagError) -> [Int: [UInt8]] {
        let keyring = ClassKeyring(classBPublicKey: store.classBPublicKey)
        var found = [16: try store.openDeviceSlot(into: keyring).exposed()]
        if let passcode {
            guard let bytes = try? secret(Array(passcode.utf8)),
                let given = try? Passcode(utf8: bytes)
            else { preconditionFailure("an impossible passcode") }
            try store.openPasscodeSlot(given, into: keyring)
        }
        for protectionClass in keyring.available.classes {
            found[Int(protectionClass.rawValue)] = try? keyring.withKey(of: protectionClass) {
                $0.exposed()
            }
        }
        return found
    }

    @Test func recoveryKits() throws {
        for vector in try VectorFile("recovery-kits").vectors {
            let text = try vector.text("text")
            let typed = try vector.text("code")
            let found = try Reading.of {
                let kit = try RecoveryKit(text: Array(text.utf8))
                let set = try open(kit, typed)
                return [
                    "\(kit.format.rawValue)", "\(kit.kitID)", "\(kit.created)",
                    "\(try set.volumeKey()!.exposed())",
                    "\(try ProtectionClass.allCases.map { try set.key(of: $0)!.exposed() })",
                ]
            }
            let wanted = try Reading.wanted(by: vector) {
                let keys = try vector.keys("keys")
                return [
                    "\(vector.has("version") ? try vector.number("version") : 1)",
                    "\(try vector.bytes("kitID"))", "\(try vector.number("made"))", "\(keys[16]!)",
                    "\(ProtectionClass.allCases.map { keys[Int($0.rawValue)]! })",
                ]
            }
            #expect(found == wanted, "\(vector.name)")
        }
    }

    private func open(_ kit: RecoveryKit, _ typed: String) throws -> KeybagKeySet {
        let typed = try secret(Array(typed.utf8))
        let code: RecoveryCode
        do throws(RecoveryCodeError) {
            code = try RecoveryCode(text: typed)
        } catch {
            throw FormatError(.malformed, "\(error)")
        }
        let kek = try KeyHierarchy.recoveryKEK(code, kitID: kit.kitID, path: "kit")
        guard
            let set = try KeybagContext.open(
                kit.sealed, kek: kek, associatedData: kit.associatedData, identity: kit.identity,
                path: "kit")
        else { throw FormatError(.authenticationFailed, "kit") }
        guard set.contains([.volumeKey, .classD, .passcodeClasses]) else {
            throw FormatError(.malformed, "incomplete")
        }
        return set
    }
}
