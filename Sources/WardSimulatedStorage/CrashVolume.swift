import Glibc
import Synchronization
import WardCrypto
import WardFormat
import WardKeys
import WardSystem
import WardVolume

/// The keys of a volume for crash tests. They protect nothing.
package struct CrashKeys: Sendable {
    let parameters: VolumeParameters
    let format: VolumeFormat
    let volumeKey: [UInt8]
    let classKeys: [ProtectionClass: [UInt8]]

    package init(pageBytes: Int, format: VolumeFormat = .ofNewVolumes) {
        self.format = format
        parameters = VolumeParameters(uuid: SystemRandom.bytes(16), pageBytes: pageBytes)
        volumeKey = SystemRandom.bytes(32)
        classKeys = Dictionary(
            uniqueKeysWithValues: ProtectionClass.allCases.map { ($0, SystemRandom.bytes(32)) })
    }

    static func secret(_ bytes: [UInt8]) throws -> SecretBytes {
        var secret = try SecretBytes(zeroed: bytes.count)
        secret.withUnsafeMutableBytes { $0.copyBytes(from: bytes) }
        return secret
    }
}

/// Collects the events that a volume reported.
package final class CrashEvents: VolumeObserver {
    private let stored = Mutex<[String]>([])
    private let healedFindings = Mutex(0)
    private let storedNotes = Mutex<[String]>([])

    package func volumeReports(_ event: VolumeEvent) {
        switch event {
        case .integrityFailure(let path, let reason):
            stored.withLock { $0.append("integrity: \(path): \(reason)") }
        case .lost(let path, let reason):
            stored.withLock { $0.append("lost: \(path): \(reason)") }
        case .foreignFile(let path): stored.withLock { $0.append("foreign: \(path)") }
        case .healed: healedFindings.withLock { $0 += 1 }
        case .note(let text): storedNotes.withLock { $0.append(text) }
        default: break
        }
    }

    /// Integrity failures, losses and foreign files.
    package var problems: [String] { stored.withLock { $0 } }
    package var notes: [String] { storedNotes.withLock { $0 } }
    /// The number of findings that were accepted because of a power cut.
    package var healed: Int { healedFindings.withLock { $0 } }
    func clear() { stored.withLock { $0 = [] } }
}

/// A volume on a simulated disk, with requests by name. Used by one thread.
package final class CrashVolume {
    package let disk: SimulatedDisk
    package let volume: Volume
    package let context: WorkerContext
    package let events = CrashEvents()
    let keys: CrashKeys
    /// The sync mark before the first class that was set without a sync, since the last
    /// `syncClasses`.
    private var classSyncMark: [UInt8]?
    static let path = "/volume"
    static let caller = Caller(uid: 0, gid: 0, pid: 0)

    /// Makes a volume on an empty disk.
    package static func create(
        _ keys: CrashKeys, on disk: SimulatedDisk, defaultClass: ProtectionClass
    ) throws {
        try Volume.create(
            backingPath: path, parameters: keys.parameters,
            volumeKey: try CrashKeys.secret(keys.volumeKey), format: keys.format,
            defaultClass: defaultClass, sealedBy: try makeKeyring(keys), storage: disk)
    }

    /// A keyring with all class keys.
    private static func makeKeyring(_ keys: CrashKeys) throws -> ClassKeyring {
        let keyring = ClassKeyring(
            classBPublicKey: X25519.publicKey(
                of: try CrashKeys.secret(keys.classKeys[.completeUnlessOpen]!)))
        for (protectionClass, key) in keys.classKeys {
            keyring.install(try CrashKeys.secret(key), for: protectionClass)
        }
        return keyring
    }

    package init(_ keys: CrashKeys, on disk: SimulatedDisk) throws {
        self.keys = keys
        self.disk = disk
        volume = try Volume(
            backingPath: CrashVolume.path, parameters: keys.parameters,
            volumeKey: try CrashKeys.secret(keys.volumeKey),
            keyring: try CrashVolume.makeKeyring(keys), readOnly: false,
            observer: events, storage: disk)
        context = WorkerContext(volume: volume)
    }

    func lock() {
        _ = volume.evict([.a, .b], keepOpenFiles: [.b], deadline: .seconds(5))
    }

    func unlock() throws {
        for protectionClass in [ProtectionClass.complete, .completeUnlessOpen] {
            volume.keyring.install(
                try CrashKeys.secret(keys.classKeys[protectionClass]!), for: protectionClass)
        }
        volume.admit([.a, .b])
    }

    // MARK: Requests

    private func with<R>(
        _ name: String, _ body: (UnsafeRawBufferPointer) throws -> R
    ) throws -> R {
        try Array(name.utf8).withUnsafeBytes { try body($0) }
    }

    package func lookup(_ name: String, in parent: NodeID) throws -> Entry {
        try with(name) { try volume.lookup(parent, $0, context) }
    }

    package func create(
        _ name: String, in parent: NodeID, mode: UInt32 = 0o644
    ) throws -> (Entry, HandleID) {
        let made = try with(name) {
            try volume.create(
                parent, $0, mode: mode, umask: 0, flags: O_RDWR | O_CREAT | O_EXCL,
                caller: CrashVolume.caller, context)
        }
        return (made.entry, made.file.handle)
    }

    func createUnnamed(in parent: NodeID) throws -> (Entry, HandleID) {
        let made = try volume.createUnnamed(
            parent, mode: 0o644, umask: 0, flags: O_RDWR, caller: CrashVolume.caller, context)
        return (made.entry, made.file.handle)
    }

    package func open(_ node: NodeID, _ flags: Int32 = O_RDWR) throws -> HandleID {
        try volume.open(
            node, flags: flags, dropPrivilegeBits: false, caller: CrashVolume.caller, context
        ).handle
    }

    package func write(_ handle: HandleID, _ offset: Int, _ data: [UInt8]) throws {
        try data.withUnsafeBytes {
            try volume.write(
                handle, offsetBytes: UInt64(offset), $0, flags: [], caller: CrashVolume.caller,
                context)
        }
    }

    package func read(_ handle: HandleID, _ offset: Int = 0, _ count: Int = 1 << 20) throws
        -> [UInt8]
    {
        defer { context.finishRequest() }
        return [UInt8](
            try volume.read(
                handle, offsetBytes: UInt64(offset), count: count, caller: CrashVolume.caller,
                context))
    }

    package func release(_ handle: HandleID) { volume.release(handle, context) }

    package func setSize(_ node: NodeID, _ handle: HandleID?, _ size: Int) throws {
        var change = AttributeChange()
        change.sizeBytes = UInt64(size)
        _ = try volume.setAttributes(
            of: node, handle: handle, change, caller: CrashVolume.caller, context)
    }

    func setMode(_ node: NodeID, _ mode: UInt32) throws {
        var change = AttributeChange()
        change.mode = mode
        _ = try volume.setAttributes(
            of: node, handle: nil, change, caller: CrashVolume.caller, context)
    }

    package func attributes(_ node: NodeID) throws -> Attributes {
        try volume.attributes(of: node, handle: nil, caller: CrashVolume.caller, context)
    }

    package func setAttribute(_ node: NodeID, _ name: String, _ value: [UInt8]) throws {
        try with(name) { name in
            try value.withUnsafeBytes {
                try volume.setExtendedAttribute(
                    of: node, name, value: $0, flags: 0, dropSetGroupID: false,
                    caller: CrashVolume.caller, context)
            }
        }
    }

    func removeAttribute(_ node: NodeID, _ name: String) throws {
        try with(name) {
            try volume.removeExtendedAttribute(
                of: node, $0, caller: CrashVolume.caller, context)
        }
    }

    /// Returns the value; nil where the attribute is missing.
    package func attribute(_ node: NodeID, _ name: String) throws -> [UInt8]? {
        do {
            return try with(name) { try volume.extendedAttribute(of: node, $0, context) }
        } catch let error as Errno where error == .noData {
            return nil
        }
    }

    /// Sets a class; without `isSynced` it is durable only after `syncClasses`.
    package func setClass(
        _ node: NodeID, _ wanted: ProtectionClass, isSynced: Bool = true
    ) throws {
        if !isSynced, classSyncMark == nil { classSyncMark = volume.classSyncMark }
        try setAttribute(
            node, isSynced ? "user.ward.class" : Volume.unsyncedClassName,
            Array(wanted.fileProtectionName.utf8))
    }

    /// Syncs the classes that were set without a sync since the last call.
    package func syncClasses() throws(Errno) {
        defer { classSyncMark = nil }
        try volume.syncClasses(since: classSyncMark ?? volume.classSyncMark)
    }

    package func classOf(_ node: NodeID) throws -> ProtectionClass {
        let text = String(
            decoding: try attribute(node, "user.ward.class") ?? [], as: UTF8.self)
        guard let found = ProtectionClass(spelling: text) else { throw Errno.ioError }
        return found
    }

    package func makeDirectory(_ name: String, in parent: NodeID) throws -> Entry {
        try with(name) {
            try volume.makeDirectory(
                parent, $0, mode: 0o755, umask: 0, caller: CrashVolume.caller, context)
        }
    }

    package func makeLink(_ name: String, in parent: NodeID, to target: String) throws -> Entry {
        try with(name) { name in
            try with(target) {
                try volume.makeSymbolicLink(
                    parent, name, target: $0, caller: CrashVolume.caller, context)
            }
        }
    }

    package func unlink(_ name: String, in parent: NodeID) throws {
        try with(name) {
            try volume.unlink(parent, $0, caller: CrashVolume.caller, context)
        }
    }

    package func removeDirectory(_ name: String, in parent: NodeID) throws {
        try with(name) { try volume.removeDirectory(parent, $0, context) }
    }

    package func rename(
        _ old: String, in from: NodeID, to new: String, in to: NodeID, flags: UInt32 = 0
    ) throws {
        try with(old) { old in
            try with(new) {
                try volume.rename(
                    from, old, to, $0, flags: flags, caller: CrashVolume.caller, context)
            }
        }
    }

    package func link(_ node: NodeID, to name: String, in parent: NodeID) throws -> Entry {
        try with(name) {
            try volume.link(node, parent, $0, caller: CrashVolume.caller, context)
        }
    }

    func allocate(_ handle: HandleID, _ mode: Int32, _ offset: Int, _ count: Int) throws {
        try volume.allocate(
            handle, mode: mode, offsetBytes: UInt64(offset), lengthBytes: UInt64(count),
            caller: CrashVolume.caller, context)
    }

    package func fsync(_ handle: HandleID, dataOnly: Bool = false) throws {
        try volume.fsync(handle, dataOnly: dataOnly, context)
    }

    package func fsyncDirectory(_ node: NodeID) throws {
        let handle = try volume.openDirectory(node, context)
        defer { volume.releaseDirectory(handle, context) }
        try volume.fsyncDirectory(handle, dataOnly: false, context)
    }

    package func names(in node: NodeID) throws -> [String] {
        let handle = try volume.openDirectory(node, context)
        defer { volume.releaseDirectory(handle, context) }
        var sink = Names()
        try volume.readDirectory(handle, offset: 0, lookup: false, into: &sink, context)
        return sink.names.sorted()
    }

    package func forget(_ node: NodeID, _ lookups: Int = 1) {
        volume.forget(node, lookups: UInt64(lookups))
    }

    private struct Names: DirectorySink {
        var names: [String] = []
        mutating func add(
            name: UnsafeRawBufferPointer, inode: UInt64, type: UInt32, nextOffset: UInt64,
            entry: Entry?
        ) -> Bool {
            let text = String(decoding: name, as: UTF8.self)
            if text != ".", text != ".." { names.append(text) }
            return true
        }
    }
}
