import Glibc
import Synchronization
import WardCrypto
import WardFormat
import WardKeys
import WardSystem

@testable import WardVolume

/// An unlocked volume with all keys in a temporary directory, made for one input.
final class FuzzVolume {
    private static let parent = Scratch.directory()

    let directory: String
    private let parameters = VolumeParameters(
        uuid: [UInt8](repeating: 1, count: 16), pageBytes: 512)
    private let volumeKey = locked([UInt8](repeating: 2, count: 32))
    private let damage = Damage()
    private(set) var volume: Volume
    private(set) var context: WorkerContext

    init() throws {
        directory = try TemporaryDirectory.make("v", in: FuzzVolume.parent)
        try Volume.create(
            backingPath: directory, parameters: parameters, volumeKey: volumeKey,
            defaultClass: .completeUntilFirstUserAuthentication, sealedBy: FuzzVolume.keyring())
        volume = try FuzzVolume.open(directory, parameters, volumeKey, damage)
        context = WorkerContext(volume: volume)
    }

    private static func keyring() -> ClassKeyring {
        let privateB = classKey(.completeUnlessOpen)
        let keyring = ClassKeyring(classBPublicKey: X25519.publicKey(of: privateB))
        for protectionClass in ProtectionClass.allCases {
            keyring.install(classKey(protectionClass), for: protectionClass)
        }
        return keyring
    }

    private static func open(
        _ directory: String, _ parameters: VolumeParameters, _ volumeKey: borrowing SecretBytes,
        _ damage: Damage
    ) throws -> Volume {
        try Volume(
            backingPath: directory, parameters: parameters, volumeKey: volumeKey,
            keyring: keyring(), readOnly: false, observer: damage, storage: FuzzStorage())
    }

    private static func classKey(_ protectionClass: ProtectionClass) -> SecretBytes {
        locked([UInt8](repeating: 0x40 + protectionClass.rawValue, count: 32))
    }

    func lock() { _ = volume.evict([.a, .b], keepOpenFiles: [.b], deadline: .seconds(5)) }

    func unlock() {
        for protectionClass in [ProtectionClass.complete, .completeUnlessOpen] {
            volume.keyring.install(FuzzVolume.classKey(protectionClass), for: protectionClass)
        }
        volume.admit([.a, .b])
    }

    /// Unmounts, mounts, and reads everything. No request may damage the volume.
    func checkEverything() {
        do {
            try volume.close()
            volume = try FuzzVolume.open(directory, parameters, volumeKey, damage)
        } catch {
            fatalError("the volume can't be mounted again: \(error)")
        }
        context = WorkerContext(volume: volume)
        read(directory: 1, depth: 0)
        let found = damage.found
        require(found.isEmpty, "the volume is damaged: \(found)")
    }

    private func read(directory node: NodeID, depth: Int) {
        guard let handle = taken({ () throws(Errno) in try volume.openDirectory(node, context) })
        else { fatalError("a directory can't be listed") }
        var sink = Names()
        do throws(Errno) {
            try volume.readDirectory(handle, offset: 0, lookup: false, into: &sink, context)
        } catch {
            fatalError("a directory can't be read: \(error)")
        }
        volume.releaseDirectory(handle, context)
        for name in sink.names {
            let entry = name.withUnsafeBytes { name in
                taken { () throws(Errno) in try volume.lookup(node, name, context) }
            }
            guard let entry else { fatalError("a name that is listed is not there: \(name)") }
            switch mode_t(entry.attributes.mode) & S_IFMT {
            case S_IFDIR where depth < 8: read(directory: entry.node, depth: depth + 1)
            case S_IFREG: read(file: entry)
            case S_IFLNK:
                let target = taken { () throws(Errno) in
                    try volume.readLink(entry.node, context)
                }
                require(target != nil, "a symbolic link can't be read")
            default: break
            }
            volume.forget(entry.node, lookups: 1)
        }
    }

    private func read(file entry: Entry) {
        let caller = Caller(uid: 0, gid: 0, pid: 0)
        do throws(Errno) {
            let file = try volume.open(
                entry.node, flags: O_RDONLY, dropPrivilegeBits: false, caller: caller, context)
            defer { volume.release(file.handle, context) }
            // Reads the beginning and the end. Between them may be a hole of megabytes.
            let size = entry.attributes.sizeBytes
            for offset in [0, size > 8192 ? size - 8192 : 0] {
                _ = try volume.read(
                    file.handle, offsetBytes: offset, count: 8192, caller: caller, context)
                context.finishRequest()
            }
        } catch {
            fatalError("a file can't be read: \(error)")
        }
    }

    func remove() { Scratch.remove(directory) }

    /// Collects the reports of damage. The loss of a mapped page is none: it happens when the page
    /// is written back while its class is closed.
    private final class Damage: VolumeObserver {
        private let reports = Mutex<[String]>([])

        var found: [String] { reports.withLock { $0 } }

        func volumeReports(_ event: VolumeEvent) {
            switch event {
            case .integrityFailure(let path, let reason): add("\(path): \(reason)")
            case .healed(let path, let finding): add("\(path): \(finding)")
            default: break
            }
        }

        private func add(_ text: String) { reports.withLock { $0.append(text) } }
    }

    private struct Names: DirectorySink {
        var names: [[UInt8]] = []

        mutating func add(
            name: UnsafeRawBufferPointer, inode: UInt64, type: UInt32, nextOffset: UInt64,
            entry: Entry?
        ) -> Bool {
            if !name.elementsEqual(".".utf8), !name.elementsEqual("..".utf8) {
                names.append([UInt8](name))
            }
            return true
        }
    }
}
