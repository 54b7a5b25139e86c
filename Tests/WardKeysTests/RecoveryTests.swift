import Glibc
import Testing
import WardSystem

@testable import WardFormat
@testable import WardKeys

@Suite("Recovery kits")
struct RecoveryTests {
    private func text(_ code: borrowing RecoveryCode) throws -> String {
        String(decoding: try code.text().exposed(), as: UTF8.self)
    }

    private func failure(_ text: String) throws -> RecoveryCodeError? {
        let given = try secret(Array(text.utf8))
        do throws(RecoveryCodeError) {
            _ = try RecoveryCode(text: given)
            return nil
        } catch {
            return error
        }
    }

    @Test("a code reads back, in any case, with any separators and look-alikes")
    func codeRoundTrip() throws {
        for _ in 0..<200 {
            let code = try RecoveryCode.random()
            let written = try text(code)
            #expect(written.count == 77 && written.split(separator: "-").count == 13)
            let spellings = [
                written, written.lowercased(), written.replacing("-", with: " \n"),
                written.replacing("-", with: ""), written.replacing("1", with: "l"),
                written.replacing("1", with: "I").replacing("0", with: "o"),
            ]
            for spelling in spellings {
                let again = try RecoveryCode(text: try secret(Array(spelling.utf8)))
                let same = again.withSecret { $0.exposed() } == code.withSecret { $0.exposed() }
                #expect(same, "\(spelling)")
            }
        }
    }

    @Test("a kit leaves the files beside it alone")
    func neighbours() throws {
        let disk = try DiskVolume(passcode: nil)
        defer { disk.remove() }
        let path = disk.root + "/own kit"
        defer { for file in [path, path + ".new"] { unlink(file) } }
        close(open(path + ".new", O_WRONLY | O_CREAT, 0o600))
        _ = try disk.open().createRecoveryKit(passcode: nil, at: path)
        #expect(access(path, F_OK) == 0)
        #expect(access(path + ".new", F_OK) == 0)
    }

    @Test("every mistyped character names its group")
    func everyTypingMistake() throws {
        let written = Array(try text(try RecoveryCode.random()))
        for (place, right) in written.enumerated() where right != "-" {
            for wrong in "0123456789ABCDEFGHJKMNPQRSTVWXYZU?" where wrong != right {
                var mistyped = written
                mistyped[place] = wrong
                #expect(try failure(String(mistyped)) == .mistyped(group: place / 6 + 1))
            }
        }
    }

    @Test("exchanged characters and exchanged groups are found")
    func exchanges() throws {
        let written = Array(try text(try RecoveryCode.random()))
        for group in 0..<13 {
            for first in 0..<5 {
                for second in first + 1..<5
                where written[group * 6 + first] != written[group * 6 + second] {
                    var mistyped = written
                    mistyped.swapAt(group * 6 + first, group * 6 + second)
                    #expect(try failure(String(mistyped)) == .mistyped(group: group + 1))
                }
            }
        }
        var groups = String(written).split(separator: "-")
        groups.swapAt(3, 9)
        #expect(try failure(groups.joined(separator: "-")) == .mistyped(group: 4))
        #expect(try failure("ABCDE-FGHJK") == .wrongLength(characters: 10))
        #expect(try failure(String(written) + "0") == .wrongLength(characters: 66))
    }

    @Test("a kit's text reads back, also with other line ends")
    func kitText() throws {
        var kit = RecoveryKit(
            format: .version1,
            identity: KeybagIdentity(
                parameters: VolumeParameters(uuid: SystemRandom.bytes(16), pageBytes: 512),
                classBPublicKey: SystemRandom.bytes(32)),
            kitID: SystemRandom.bytes(16), created: 1_700_000_000)
        kit.sealed = SystemRandom.bytes(227)
        for format in VolumeFormat.allCases {
            kit.format = format
            #expect(try RecoveryKit(text: Array(kit.text.utf8)) == kit)
        }
        let dos = kit.text.replacing("\n", with: "\r\n  ")
        #expect(try RecoveryKit(text: Array(dos.utf8)) == kit)
        for bad in [
            "", "nothing", String(kit.text.dropLast(20)), kit.text.replacing("A", with: "B"),
        ] {
            #expect(throws: FormatError.self) { try RecoveryKit(text: Array(bad.utf8)) }
        }
    }

    @Test("a kit vouches for the format that it was made in, and its code proves which")
    func kitFormat() throws {
        let volume = try SimulatedVolume(passcode: "1234", format: .version1)
        func open(_ path: String, _ code: borrowing RecoveryCode) throws(KeybagError)
            -> VolumeFormat
        {
            try KeybagStore.openRecoveryKit(at: path, code: code, volume.storage).format
        }
        func make(_ path: String) throws -> RecoveryCode {
            try volume.open().createRecoveryKit(passcode: try passcode("1234"), at: path)
        }
        let old = try make("/old")
        try volume.open().raise(to: .version2, passcode: try passcode("1234"))
        let new = try make("/new")
        #expect(try open("/old", old) == .version1)
        #expect(try open("/new", new) == .version2)
        // The version is authenticated, in both directions.
        for path in ["/old", "/new"] {
            var kit = try KeybagStore.readRecoveryKit(at: path, volume.storage)
            kit.format = kit.format == .version1 ? .version2 : .version1
            volume.storage[path] = Array(kit.text.utf8)
        }
        #expect(code { () throws(KeybagError) in _ = try open("/old", old) } == .wrongRecoveryCode)
        #expect(code { () throws(KeybagError) in _ = try open("/new", new) } == .wrongRecoveryCode)
    }

    @Test("which copies a kit takes: what is older than it needs the owner's word")
    func kitAndCopy() {
        let (first, second) = (FormatStanding(.version1), FormatStanding(.version2))
        for (copy, kit, vouched, withWord) in [
            (first, VolumeFormat.version1, VolumeFormat.version1, VolumeFormat.version1),
            (FormatStanding.upgrading, .version1, nil, .version1),
            (second, .version1, .version2, .version2),
            (first, .version2, nil, .version1),
            (FormatStanding.upgrading, .version2, nil, .version1),
            (second, .version2, .version2, .version2),
        ] as [(FormatStanding, VolumeFormat, VolumeFormat?, VolumeFormat)] {
            #expect(copy.vouched(byKit: kit, takesOlder: false) == vouched, "\(copy) \(kit)")
            #expect(copy.vouched(byKit: kit, takesOlder: true) == withWord, "\(copy) \(kit)")
        }
    }

    @Test("a kit opens everything without device and passcode, before and after they change")
    func kitOnDisk() throws {
        let disk = try DiskVolume(passcode: "1234", withKit: true)
        defer { disk.remove() }
        let keys = try disk.open().allKeys("1234")
        #expect(try disk.keys(ofKit: disk.kit) == keys)
        let store = try disk.open()
        #expect(
            code { () throws(KeybagError) in
                _ = try store.createRecoveryKit(passcode: nil, at: disk.root + "/second")
            } == .passcodeNeeded)
        try store.changePasscode(try passcode("1234"), to: try passcode("5678"))
        try store.erase()
        #expect(try disk.keys(ofKit: disk.kit) == keys, "a kit can't be revoked")
    }

    @Test("where a kit may not be, and with which code it does not open")
    func kitErrors() throws {
        let disk = try DiskVolume(passcode: nil, withKit: true)
        defer { disk.remove() }
        let store = try disk.open()
        func create(_ path: String) -> KeybagError.Code? {
            code { () throws(KeybagError) in
                _ = try store.createRecoveryKit(passcode: nil, at: path)
            }
        }
        #expect(create(disk.kit) == .fileExists)
        #expect(create(disk.volume + "/kit") == .insideVolume)
        #expect(create(disk.root + "/none/kit") == .system(.noSuchFileOrDirectory))
        let other = try RecoveryCode.random()
        #expect(
            code { () throws(KeybagError) in
                _ = try KeybagStore.openRecoveryKit(at: disk.kit, code: other)
            } == .wrongRecoveryCode)
    }
}

/// A volume's keybag in real files.
final class DiskVolume {
    let root: String
    var volume: String { root + "/volume" }
    var state: String { root + "/state/ward" }
    var kit: String { root + "/kit" }
    let parameters = VolumeParameters(uuid: SystemRandom.bytes(16), pageBytes: 4096)
    private var code = ""
    /// The code of the kit, as it was shown.
    var shownCode: String { code }

    init(passcode: String?, withKit: Bool = false) throws {
        var template = Array("/tmp/ward-keys-XXXXXX".utf8CString)
        root = String(cString: mkdtemp(&template)!)
        mkdir(volume, 0o755)
        var given: Passcode?
        if let passcode { given = try WardKeysTests.passcode(passcode) }
        let made = try KeybagStore.create(
            volumePath: volume, stateRoot: state, parameters: parameters, passcode: given,
            cost: .test, recoveryKitPath: withKit ? kit : nil, makeRoot: { _, _ in })
        switch made {
        case .some(let made): code = String(decoding: try made.text().exposed(), as: UTF8.self)
        case .none: break
        }
    }

    func open() throws(KeybagError) -> KeybagStore {
        try KeybagStore(volumePath: volume, stateRoot: state)
    }

    func keys(ofKit path: String) throws -> [[UInt8]] {
        let code = try RecoveryCode(text: try secret(Array(code.utf8)))
        let recovered = try KeybagStore.openRecoveryKit(at: path, code: code)
        let keyring = ClassKeyring(classBPublicKey: recovered.classBPublicKey)
        let volumeKey = try recovered.install(into: keyring).exposed()
        return try [volumeKey]
            + ProtectionClass.allCases.map { try keyring.withKey(of: $0) { $0.exposed() } }
    }

    func remove() {
        for directory in [
            volume, StateDirectory(root: state, volumeUUID: parameters.uuid).path, state,
            root + "/state", root,
        ] {
            for name in names(directory) { unlink(directory + "/" + name) }
            rmdir(directory)
        }
    }

    func names(_ directory: String) -> [String] {
        guard let stream = opendir(directory) else { return [] }
        defer { closedir(stream) }
        var result: [String] = []
        while let entry = readdir(stream) {
            let name = withUnsafeBytes(of: &entry.pointee.d_name) {
                String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self)
            }
            if name != "." && name != ".." { result.append(name) }
        }
        return result.sorted()
    }
}
