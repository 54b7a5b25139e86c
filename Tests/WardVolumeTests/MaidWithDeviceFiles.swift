import Foundation
import WardCrypto
import WardFormat
import WardKeys
import WardSystem

@testable import WardVolume

/// A person with the backing directory and the device's files, and without the passcode.
struct MaidWithDeviceFiles {
    typealias Place = (path: String, id: [UInt8], parentID: [UInt8])

    /// The backing path of a path inside the volume, and the IDs of its directory and of the one
    /// above. The names are found by the volume key.
    func place(_ path: String?, _ harness: VolumeHarness) throws -> Place {
        let keys = harness.volume.keys
        var found = (harness.directory, keys.rootID, DirectoryRecord.noParent)
        for name in (path ?? "").split(separator: "/") {
            var stored = [CChar](repeating: 0, count: 512)
            _ = try Array(name.utf8).withUnsafeBytes {
                try keys.names.encrypt($0, in: found.1, to: &stored)
            }
            let bytes = stored.prefix { $0 != 0 }.map(UInt8.init(bitPattern:))
            let inner = found.0 + "/" + String(decoding: bytes, as: UTF8.self)
            let record = try? record(at: inner, parentID: found.1, harness)
            found = (inner, record?.directoryID ?? found.1, found.1)
        }
        return found
    }

    func record(
        at path: String, parentID: [UInt8], _ harness: VolumeHarness
    ) throws -> DirectoryRecord {
        let target = try FileManager.default.destinationOfSymbolicLink(
            atPath: path + "/" + DirectoryRecord.linkName)
        return try DirectoryRecord(
            linkTarget: target, macKey: harness.volume.keys.records, parentID: parentID)
    }

    /// Changes a directory's record. `isRight`: with the right authentication code.
    func rewriteRecord(
        of path: String?, _ harness: VolumeHarness, isRight: Bool = true,
        _ change: (inout DirectoryRecord) -> Void
    ) throws {
        let place = try place(path, harness)
        var record = try record(at: place.path, parentID: place.parentID, harness)
        change(&record)
        try write(
            record, to: place.path,
            parentID: isRight ? place.parentID : SystemRandom.bytes(16), harness)
    }

    func write(
        _ record: DirectoryRecord, to path: String, parentID: [UInt8], _ harness: VolumeHarness
    ) throws {
        let link = path + "/" + DirectoryRecord.linkName
        try FileManager.default.removeItem(atPath: link)
        try FileManager.default.createSymbolicLink(
            atPath: link,
            withDestinationPath: record.linkTarget(
                macKey: harness.volume.keys.records, parentID: parentID))
    }

    /// Changes a file's header.
    func rewriteHeader(
        of path: String, _ harness: VolumeHarness, _ change: (inout FileHeader) -> Void
    ) throws {
        let url = URL(fileURLWithPath: try place(path, harness).path)
        var data = try Data(contentsOf: url)
        let keys = harness.volume.keys
        var header = try data.withUnsafeBytes {
            try FileHeader(reading: $0.baseAddress!, macKey: keys.headers, format: .version2)
        }
        change(&header)
        data.withUnsafeMutableBytes {
            header.write(to: $0.baseAddress!, macKey: keys.headers, format: .version2)
        }
        // In place, so that the inode stays.
        let file = try FileHandle(forWritingTo: url)
        defer { try? file.close() }
        try file.write(contentsOf: data)
    }

    /// Puts a copy of one file in the place of another one, with a header for that place.
    func replaceFile(_ victim: String, with bait: String, _ harness: VolumeHarness) throws {
        let keys = harness.volume.keys
        let target = try place(victim, harness)
        var data = try Data(contentsOf: URL(fileURLWithPath: try place(bait, harness).path))
        var header = try data.withUnsafeBytes {
            try FileHeader(reading: $0.baseAddress!, macKey: keys.headers, format: .version2)
        }
        header.directoryID = target.parentID
        header.fileID = SystemRandom.bytes(16)
        data.withUnsafeMutableBytes {
            header.write(to: $0.baseAddress!, macKey: keys.headers, format: .version2)
        }
        try FileManager.default.removeItem(atPath: target.path)
        try data.write(to: URL(fileURLWithPath: target.path))
    }

    /// Puts one directory in the place of another one, with a record for that place.
    func replaceDirectory(_ victim: String, with bait: String, _ harness: VolumeHarness) throws {
        let (target, source) = (try place(victim, harness), try place(bait, harness))
        let record = try record(at: source.path, parentID: source.parentID, harness)
        try FileManager.default.removeItem(atPath: target.path)
        try FileManager.default.moveItem(atPath: source.path, toPath: target.path)
        try write(record, to: target.path, parentID: target.parentID, harness)
    }

    /// The backing paths of directories and files with headers whose class has no right seal.
    func unsealed(_ harness: VolumeHarness) throws -> [String] {
        let seals = ClassSeals(try harness.allKeys(), .version2)
        var found: [String] = []
        func visit(_ path: String, parentID: [UInt8]) throws {
            let record = try record(at: path, parentID: parentID, harness)
            if !seals.isRight(record, parentID: parentID) { found.append(path) }
            for name in try FileManager.default.contentsOfDirectory(atPath: path)
            where !name.contains(".") && name != "README" {
                let inner = path + "/" + name
                let type = try FileManager.default.attributesOfItem(atPath: inner)[.type]
                if type as? FileAttributeType == .typeDirectory {
                    try visit(inner, parentID: record.directoryID)
                } else if let header = try header(at: inner, harness), !seals.isRight(header) {
                    found.append(inner)
                }
            }
        }
        try visit(harness.directory, parentID: DirectoryRecord.noParent)
        return found
    }

    func header(at path: String, _ harness: VolumeHarness) throws -> FileHeader? {
        let data = try Data(contentsOf: URL(fileURLWithPath: path))
        guard data.count >= FileHeader.bytes else { return nil }
        return try data.withUnsafeBytes {
            try FileHeader(
                reading: $0.baseAddress!, macKey: harness.volume.keys.headers, format: .version2)
        }
    }
}
