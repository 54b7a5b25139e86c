import Foundation
import Glibc
import Testing
import WardCrypto
import WardSystem

@testable import WardFormat
@testable import WardKeys
@testable import WardVolume

/// Names, links, attributes and whole files of Tests/Vectors, written to the disk unchanged and
/// read through `Volume`.
@Suite struct VolumeVectorTests {
    @Test func names() throws {
        let file = try VectorFile("names")
        for vector in file.vectors {
            let planted = try PlantedVolume(file.common)
            let id = try vector.bytes("directoryID")
            // A directory with that ID, or the root if it has the ID.
            let directory =
                id == planted.keys.rootID ? planted.path : planted.makeDirectory("sub", id: id)
            let stored = try vector.text("stored")
            close(open(directory + "/" + stored, O_CREAT | O_WRONLY, 0o600))
            if vector.has("link") {
                symlink(try vector.text("link"), directory + "/.n" + stored.dropFirst())
            }
            let harness = try OpenedVolume(planted)
            let node: NodeID =
                directory == planted.path ? 1 : try harness.lookup(Array("sub".utf8)).node
            let wanted = vector.error == nil ? [try vector.bytes("plain")] : []
            let found = try harness.names(in: node).filter { $0 != Array("sub".utf8) }
            #expect(found == wanted, "\(vector.name)")
            guard let plain = wanted.first else { continue }
            // A look-up makes the same stored name.
            #expect(throws: Never.self, "\(vector.name)") {
                try harness.lookup(plain, in: node)
            }
        }
    }

    @Test func symbolicLinks() throws {
        let file = try VectorFile("symbolic-links")
        for vector in file.vectors {
            // A link of format 2 lies in a directory with the vector's ID.
            let id = try vector.has("directoryID") ? vector.bytes("directoryID") : nil
            let planted = try PlantedVolume(
                file.common, format: id == nil ? .version1 : .version2)
            let directory = id.map { planted.makeDirectory("sub", id: $0) } ?? planted.path
            symlink(
                try vector.text("target"), directory + "/" + planted.storedName("link", in: id))
            if vector.has("permit") {
                let permit = try vector.part("permit")
                symlink(try permit.text("target"), directory + "/" + (try permit.text("name")))
            }
            if vector.has("kept") {
                let kept = try vector.part("kept")
                try FileManager.default.createDirectory(
                    atPath: planted.path + "/ward.links", withIntermediateDirectories: false)
                try Data(try kept.bytes("bytes")).write(
                    to: URL(
                        fileURLWithPath: planted.path + "/ward.links/" + (try kept.text("name"))))
            }
            let harness = try OpenedVolume(planted)
            let parent = id == nil ? 1 : try harness.lookup(Array("sub".utf8)).node
            let node = try harness.lookup(Array("link".utf8), in: parent).node
            var found: [UInt8]?
            do throws(Errno) {
                found = try harness.volume.readLink(node, harness.context)
            } catch {
                #expect(error == .ioError, "\(vector.name)")
            }
            #expect(
                try found == (vector.error == nil ? vector.bytes("plain") : nil), "\(vector.name)")
        }
    }

    @Test func attributes() throws {
        let file = try VectorFile("attributes")
        let id = try file.common.bytes("ownerID")
        for vector in file.vectors {
            let stored = try vector.text("stored")
            // Only root has trusted attributes.
            if stored.hasPrefix("trusted."), geteuid() != 0 { continue }
            let format = try vector.format()
            let planted = try PlantedVolume(file.common, format: format)
            let path = planted.path + "/" + planted.storedName("file")
            let header = FileHeader(
                protectionClass: .none, fileID: id, directoryID: planted.keys.rootID)
            var page = [UInt8](repeating: 0, count: 512)
            page.withUnsafeMutableBytes {
                header.write(to: $0.baseAddress!, macKey: planted.keys.headers, format: format)
            }
            try Data(page).write(to: URL(fileURLWithPath: path))
            let value = try vector.bytes("value")
            let descriptor = Glibc.open(path, O_RDONLY)
            try value.withUnsafeBytesTyped { bytes throws(Errno) in
                try PosixStorage().setxattr(descriptor, stored, bytes, flags: 0)
            }
            close(descriptor)
            let harness = try OpenedVolume(planted)
            let node = try harness.lookup(Array("file".utf8)).node
            var found: [UInt8]?
            do throws(Errno) {
                found = try harness.attribute(of: node, (try? vector.text("plainName")) ?? "")
            } catch {
                #expect(error == .ioError, "\(vector.name)")
            }
            #expect(
                try found == (vector.error == nil ? vector.bytes("plain") : nil), "\(vector.name)")
        }
    }

    @Test func files() throws {
        let file = try VectorFile("files")
        let layout = PageLayout(pageBytes: try file.common.number("pageBytes"))
        for vector in file.vectors {
            let doubtful = try vector.has("doubtful") ? vector.spans("doubtful") : []
            let planted = try PlantedVolume(
                file.common, format: vector.format(),
                doubtful: doubtful.map { UInt32($0[0])...UInt32($0[1]) })
            try Data(try vector.bytes()).write(
                to: URL(fileURLWithPath: planted.path + "/" + planted.storedName("file")))
            let harness = try OpenedVolume(planted)
            let node = try harness.lookup(Array("file".utf8)).node
            let handle: HandleID
            do throws(Errno) {
                handle = try harness.open(node)
            } catch {
                #expect(error == .ioError, "\(vector.name)")
                #expect(vector.error == "unreadable", "\(vector.name)")
                continue
            }
            defer { harness.volume.release(handle, harness.context) }
            #expect(vector.error == nil, "\(vector.name)")
            guard vector.error == nil else { continue }
            let content = try vector.bytes("content")
            #expect(try harness.size(node) == content.count, "\(vector.name)")
            let number = UInt8(try vector.number("class"))
            let protectionClass = try #require(ProtectionClass(rawValue: number))
            let name = String(
                decoding: try harness.attribute(of: node, "user.ward.class"), as: UTF8.self)
            #expect(name == protectionClass.fileProtectionName, "\(vector.name)")

            // Page by page: a damaged page is an error for itself alone.
            var damaged: [[Int]] = []
            for page in 0..<layout.pageCount(forSize: content.count) {
                let start = layout.start(ofPage: page)
                let end = min(start + layout.capacity(ofPage: page), content.count)
                do throws(Errno) {
                    let found = try harness.read(handle, start, end - start)
                    #expect(found == Array(content[start..<end]), "\(vector.name), page \(page)")
                } catch {
                    #expect(error == .ioError, "\(vector.name), page \(page)")
                    damaged.append([start, end])
                }
            }
            #expect(try damaged == vector.spans("damaged"), "\(vector.name)")
            let excused = vector.has("excused") ? try vector.number("excused") : 0
            #expect(harness.events.hasHealed == (excused > 0), "\(vector.name)")
        }
    }
}

/// The directory of a volume made with the keys of a vector file. Tests put files into it before it
/// is opened.
final class PlantedVolume {
    let path: String
    let common: Vector
    let keys: VolumeKeys
    /// The cipher of names, AES-256-GCM-SIV (format.md §5).
    private let names: AEADContext
    let parameters: VolumeParameters

    init(
        _ common: Vector, format: VolumeFormat = .version1, doubtful: [ClosedRange<UInt32>] = []
    ) throws {
        self.common = common
        path = NSTemporaryDirectory() + "ward-vectors-" + UUID().uuidString
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
        let volumeKey = try secret(try common.bytes("volumeKey"))
        keys = try VolumeKeys(volumeKey: volumeKey, format: format)
        names = try AEADContext(
            .aes256GCMSIV, key: KeyDerivation.derive(from: volumeKey, info: "ward names"))
        parameters = VolumeParameters(uuid: [UInt8](repeating: 7, count: 16), pageBytes: 512)
        let number = common.has("directoryClass") ? try common.number("directoryClass") : 4
        try Volume.create(
            backingPath: path, parameters: parameters, volumeKey: volumeKey, format: format,
            defaultClass: ProtectionClass(rawValue: UInt8(number))!)
        let record = VolumeStateRecord(
            format: format, isInUse: false, epoch: 1000, doubtful: doubtful)
        try Data(record.serialized(macKey: keys.state)).write(
            to: URL(fileURLWithPath: path + "/" + VolumeStateRecord.fileName))
    }

    deinit { try? FileManager.default.removeItem(atPath: path) }

    /// Makes a directory in the root, with its record. Returns its backing path.
    func makeDirectory(_ name: String, id: [UInt8]) -> String {
        let directory = path + "/" + storedName(name)
        mkdir(directory, 0o700)
        let record = DirectoryRecord(directoryID: id, protectionClass: .none)
        symlink(
            record.linkTarget(macKey: keys.records, parentID: keys.parentID(keys.rootID)),
            directory + "/.ward")
        return directory
    }

    /// The stored name of a short name in a directory; nil: in the root.
    func storedName(_ name: String, in directoryID: [UInt8]? = nil) -> String {
        let plain = Array(name.utf8)
        var sealed = [UInt8](repeating: 0, count: plain.count + 16)
        let nonce = [UInt8](repeating: 0, count: 12)
        sealed.withUnsafeMutableBytes { out in
            names.seal(
                plain, count: plain.count, to: out.baseAddress!,
                tag: out.baseAddress! + plain.count, nonce: nonce,
                associatedData: directoryID ?? keys.rootID, associatedDataBytes: 16)
        }
        return Base64URL.encode(sealed)
    }
}

/// The planted volume, opened for reading.
struct OpenedVolume {
    let volume: Volume
    let context: WorkerContext
    let events = VectorEvents()
    private let caller = Caller(uid: getuid(), gid: getgid(), pid: 0)

    init(_ planted: PlantedVolume) throws {
        let keyring: ClassKeyring
        if planted.common.has("classKeys") {
            keyring = try FormatVectorTests.keyring(planted.common)
        } else {
            let key = try SecretBytes(random: 32)
            keyring = ClassKeyring(classBPublicKey: X25519.publicKey(of: key))
        }
        volume = try Volume(
            backingPath: planted.path, parameters: planted.parameters,
            volumeKey: try secret(try planted.common.bytes("volumeKey")), keyring: keyring,
            readOnly: true, observer: events)
        context = WorkerContext(volume: volume)
    }

    @discardableResult
    func lookup(_ name: [UInt8], in parent: NodeID = 1) throws(Errno) -> Entry {
        try name.withUnsafeBytesTyped { bytes throws(Errno) in
            try volume.lookup(parent, bytes, context)
        }
    }

    func open(_ node: NodeID) throws(Errno) -> HandleID {
        try volume.open(node, flags: O_RDONLY, dropPrivilegeBits: false, caller: caller, context)
            .handle
    }

    func read(_ handle: HandleID, _ offset: Int, _ count: Int) throws(Errno) -> [UInt8] {
        defer { context.finishRequest() }
        return [UInt8](
            try volume.read(
                handle, offsetBytes: UInt64(offset), count: count, caller: caller, context))
    }

    func size(_ node: NodeID) throws(Errno) -> Int {
        Int(try volume.attributes(of: node, handle: nil, caller: caller, context).sizeBytes)
    }

    func attribute(of node: NodeID, _ name: String) throws(Errno) -> [UInt8] {
        try Array(name.utf8).withUnsafeBytesTyped { bytes throws(Errno) in
            try volume.extendedAttribute(of: node, bytes, context)
        }
    }

    func names(in node: NodeID) throws(Errno) -> [[UInt8]] {
        let handle = try volume.openDirectory(node, context)
        defer { volume.releaseDirectory(handle, context) }
        var sink = ByteNames()
        try volume.readDirectory(handle, offset: 0, lookup: false, into: &sink, context)
        return sink.names.filter { $0 != [46] && $0 != [46, 46] }
    }
}

struct ByteNames: DirectorySink {
    var names: [[UInt8]] = []
    mutating func add(
        name: UnsafeRawBufferPointer, inode: UInt64, type: UInt32, nextOffset: UInt64, entry: Entry?
    ) -> Bool {
        names.append([UInt8](name))
        return true
    }
}

final class VectorEvents: VolumeObserver, @unchecked Sendable {
    private let lock = NSLock()
    private var healed = false
    func volumeReports(_ event: VolumeEvent) {
        if case .healed = event { lock.withLock { healed = true } }
    }
    var hasHealed: Bool { lock.withLock { healed } }
}
