import Foundation
import Glibc
import WardCrypto
import WardFormat
import WardKeys
import WardSystem

@testable import WardVolume

/// A volume in a temporary directory, driven without a mount: requests go straight to `Volume`.
final class VolumeHarness {
    let directory: String
    let parameters: VolumeParameters
    let events = EventLog()
    let volumeKey: SecretBytes
    let classKeys: [ProtectionClass: Data]
    private(set) var volume: Volume
    private(set) var context: WorkerContext
    let caller = Caller(uid: getuid(), gid: getgid(), pid: 0)

    init(
        pageBytes: Int = 4096, format: VolumeFormat = .ofNewVolumes,
        defaultClass: ProtectionClass = .none,
        storage: any Storage = PosixStorage(), below: String = NSTemporaryDirectory()
    ) throws {
        directory = below + "/ward-volume-" + UUID().uuidString
        try FileManager.default.createDirectory(
            atPath: directory, withIntermediateDirectories: true)
        parameters = VolumeParameters(uuid: SystemRandom.bytes(16), pageBytes: pageBytes)
        volumeKey = try SecretBytes(random: 32)
        classKeys = Dictionary(
            uniqueKeysWithValues: ProtectionClass.allCases.map {
                ($0, Data(SystemRandom.bytes(32)))
            })
        try Volume.create(
            backingPath: directory, parameters: parameters, volumeKey: volumeKey,
            format: format, defaultClass: defaultClass,
            sealedBy: VolumeHarness.keyring(classKeys))
        volume = try VolumeHarness.open(
            directory, parameters, volumeKey, classKeys, events, storage)
        context = WorkerContext(volume: volume)
    }

    /// Opens another directory with the ciphertext of the same volume as it is, or, with `isCopy`,
    /// as a restored backup.
    init(copyOf other: VolumeHarness, in directory: String, isCopy: Bool = false) throws {
        self.directory = directory
        parameters = other.parameters
        volumeKey = try other.volumeKey.copy()
        classKeys = other.classKeys
        volume = try VolumeHarness.open(
            directory, parameters, volumeKey, classKeys, events, PosixStorage(), isCopy: isCopy)
        context = WorkerContext(volume: volume)
    }

    deinit { try? FileManager.default.removeItem(atPath: directory) }

    private static func open(
        _ directory: String, _ parameters: VolumeParameters, _ volumeKey: borrowing SecretBytes,
        _ classKeys: [ProtectionClass: Data], _ events: EventLog, _ storage: any Storage,
        isCopy: Bool = false, kernelKeepsContent: Bool = true, isBooted: Bool = false
    ) throws -> Volume {
        return try Volume(
            backingPath: directory, parameters: parameters, volumeKey: volumeKey,
            keyring: keyring(classKeys, isBooted ? [.d] : .all), readOnly: false, isCopy: isCopy,
            kernelKeepsContent: kernelKeepsContent, observer: events, storage: storage)
    }

    /// A keyring with the keys of these classes.
    private static func keyring(
        _ classKeys: [ProtectionClass: Data], _ classes: ProtectionClassSet = .all
    ) throws -> ClassKeyring {
        let keyring = ClassKeyring(
            classBPublicKey: publicKey(try secret(classKeys[.completeUnlessOpen]!)))
        for protectionClass in classes.classes {
            keyring.install(try secret(classKeys[protectionClass]!), for: protectionClass)
        }
        return keyring
    }

    /// A keyring with all class keys, in every lock state.
    func allKeys() throws -> ClassKeyring { try VolumeHarness.keyring(classKeys) }

    /// Closes and opens again, as a reboot does: with the key of class D alone.
    func reboot() throws {
        try volume.close()
        volume = try VolumeHarness.open(
            directory, parameters, volumeKey, classKeys, events, PosixStorage(), isBooted: true)
        context = WorkerContext(volume: volume)
    }

    /// The first unlock after `reboot`.
    func unlockFirst() throws {
        let classes: ProtectionClassSet = [.a, .b, .c, .cx]
        for protectionClass in classes.classes {
            volume.keyring.install(
                try secret(classKeys[protectionClass]!), for: protectionClass)
        }
        volume.admit(classes)
    }

    /// Closes and opens again, as an unmount and a mount do. Without `clean` it does not close.
    func reopen(
        clean: Bool = true, storage: any Storage = PosixStorage(), kernelKeepsContent: Bool = true
    ) throws {
        if clean { try volume.close() }
        volume = try VolumeHarness.open(
            directory, parameters, volumeKey, classKeys, events, storage,
            kernelKeepsContent: kernelKeepsContent)
        context = WorkerContext(volume: volume)
    }

    func lock() { _ = volume.evict([.a, .b], keepOpenFiles: [.b], deadline: .seconds(5)) }

    func unlock() throws {
        for protectionClass in [ProtectionClass.complete, .completeUnlessOpen] {
            volume.keyring.install(
                try secret(classKeys[protectionClass]!),
                for: protectionClass)
        }
        volume.admit([.a, .b])
    }

    // MARK: Requests by name

    func create(_ name: String, in parent: NodeID = 1, mode: UInt32 = 0o644) throws(Errno) -> (
        node: NodeID, handle: HandleID
    ) {
        let made = try withName(name) { bytes throws(Errno) in
            try volume.create(
                parent, bytes, mode: mode, umask: 0o022, flags: O_RDWR | O_CREAT, caller: caller,
                context)
        }
        return (made.entry.node, made.file.handle)
    }

    func lookup(_ name: String, in parent: NodeID = 1) throws(Errno) -> Entry {
        try withName(name) { bytes throws(Errno) in try volume.lookup(parent, bytes, context) }
    }

    func open(_ node: NodeID, _ flags: Int32 = O_RDWR) throws(Errno) -> HandleID {
        try volume.open(node, flags: flags, dropPrivilegeBits: false, caller: caller, context)
            .handle
    }

    func write(_ handle: HandleID, _ offset: Int, _ data: [UInt8]) throws(Errno) {
        do {
            try data.withUnsafeBytes {
                try volume.write(
                    handle, offsetBytes: UInt64(offset), $0, flags: [], caller: caller, context)
            }
        } catch { throw error as! Errno }
    }

    func read(_ handle: HandleID, _ offset: Int, _ count: Int) throws(Errno) -> [UInt8] {
        let bytes = [UInt8](
            try volume.read(
                handle, offsetBytes: UInt64(offset), count: count, caller: caller, context))
        context.finishRequest()
        return bytes
    }

    func setSize(_ node: NodeID, _ handle: HandleID?, _ size: Int) throws(Errno) {
        var change = AttributeChange()
        change.sizeBytes = UInt64(size)
        _ = try volume.setAttributes(of: node, handle: handle, change, caller: caller, context)
    }

    func size(_ node: NodeID) throws(Errno) -> Int {
        Int(try volume.attributes(of: node, handle: nil, caller: caller, context).sizeBytes)
    }

    func setClass(_ node: NodeID, _ spelling: String) throws(Errno) {
        try withName("user.ward.class") { name throws(Errno) in
            try withName(spelling) { value throws(Errno) in
                try volume.setExtendedAttribute(
                    of: node, name, value: value, flags: 0, dropSetGroupID: false, caller: caller,
                    context)
            }
        }
    }

    func classOf(_ node: NodeID) throws(Errno) -> String {
        let value = try withName("user.ward.class") { name throws(Errno) in
            try volume.extendedAttribute(of: node, name, context)
        }
        return String(decoding: value, as: UTF8.self)
    }

    func names(in node: NodeID = 1) throws(Errno) -> [String] {
        let handle = try volume.openDirectory(node, context)
        defer { volume.releaseDirectory(handle, context) }
        var sink = NameSink()
        try volume.readDirectory(handle, offset: 0, lookup: false, into: &sink, context)
        return sink.names.filter { $0 != "." && $0 != ".." }.sorted()
    }

    func makeDirectory(_ name: String, in parent: NodeID = 1) throws(Errno) -> NodeID {
        try withName(name) { name throws(Errno) in
            try volume.makeDirectory(
                parent, name, mode: 0o755, umask: 0, caller: caller, context)
        }.node
    }

    func rename(
        _ old: String, _ from: NodeID, _ new: String, _ to: NodeID, flags: UInt32 = 0
    ) throws(Errno) {
        try withName(old) { old throws(Errno) in
            try withName(new) { new throws(Errno) in
                try volume.rename(from, old, to, new, flags: flags, caller: caller, context)
            }
        }
    }

    func link(_ node: NodeID, _ name: String, in parent: NodeID) throws(Errno) {
        _ = try withName(name) { name throws(Errno) in
            try volume.link(node, parent, name, caller: caller, context)
        }
    }

    func unlink(_ name: String, in parent: NodeID = 1) throws(Errno) {
        try withName(name) { name throws(Errno) in
            try volume.unlink(parent, name, caller: caller, context)
        }
    }

    func setMark(_ node: NodeID) throws(Errno) {
        try withName("user.ward.synced") { name throws(Errno) in
            try withName("marked") { value throws(Errno) in
                try volume.setExtendedAttribute(
                    of: node, name, value: value, flags: 0, dropSetGroupID: false, caller: caller,
                    context)
            }
        }
    }

    /// Makes a file with content, and closes it.
    func put(
        _ name: String, in parent: NodeID = 1, _ content: String
    ) throws(Errno) -> NodeID {
        let (node, handle) = try create(name, in: parent)
        try write(handle, 0, Array(content.utf8))
        volume.release(handle, context)
        return node
    }

    func withName<R>(_ name: String, _ body: (UnsafeRawBufferPointer) throws(Errno) -> R)
        throws(Errno) -> R
    {
        do {
            return try Array(name.utf8).withUnsafeBytes { try body($0) }
        } catch { throw error as! Errno }
    }
}

struct NameSink: DirectorySink {
    var names: [String] = []
    mutating func add(
        name: UnsafeRawBufferPointer, inode: UInt64, type: UInt32, nextOffset: UInt64, entry: Entry?
    ) -> Bool {
        names.append(String(decoding: name, as: UTF8.self))
        return true
    }
}

final class EventLog: VolumeObserver, @unchecked Sendable {
    private let lock = NSLock()
    private var stored: [VolumeEvent] = []
    func volumeReports(_ event: VolumeEvent) {
        lock.withLock { stored.append(event) }
    }
    var all: [VolumeEvent] { lock.withLock { stored } }
    /// How many events the test has already read. Only the test's thread uses it.
    var skipped = 0
    var integrityFailures: [String] {
        all.compactMap {
            if case .integrityFailure(let path, let reason) = $0 {
                "\(path): \(reason)"
            } else {
                nil
            }
        }
    }
}

/// The public half of a class B key.
func publicKey(_ key: borrowing SecretBytes) -> [UInt8] { X25519.publicKey(of: key) }

func secret(_ data: Data) throws -> SecretBytes {
    var secret = try SecretBytes(zeroed: data.count)
    secret.withUnsafeMutableBytes { out in _ = data.copyBytes(to: out) }
    return secret
}
