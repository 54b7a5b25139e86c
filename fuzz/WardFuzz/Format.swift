import WardCrypto
import WardSystem

@testable import WardFormat

/// Structures of files and directories (docs/format.md). Structures with a MAC are read as they
/// come, and again with the right MAC. Otherwise only the check of the MAC would be tested.
let formatParsers: [Parser] = [
    Parser(name: "file-header", maximumBytes: 512) { bytes in
        // The volume always reads whole pages.
        var bytes = bytes + [UInt8](repeating: 0, count: max(0, FileHeader.bytes - bytes.count))
        readHeader(bytes)
        bytes.replaceSubrange(
            224..<256, with: HMACSHA256.authenticate(Array(bytes[..<224]), key: macKey))
        readHeader(bytes)
    },
    Parser(name: "places", maximumBytes: FilePlaces.mostBytes + 16) { bytes in
        readPlaces(bytes)
        let body = Array(bytes.dropLast(16))
        readPlaces(body + HMACSHA256.authenticate(someID + body, key: macKey)[0..<16])
    },
    Parser(name: "link-permit", maximumBytes: 256) { bytes in
        let stored = Array(bytes.dropFirst(48))
        readPermit(String(decoding: bytes.prefix(43), as: UTF8.self), stored)
        let origin = Array((bytes + [UInt8](repeating: 1, count: 16)).prefix(16))
        let target = LinkPermit(originID: origin)
            .linkTarget(for: stored, in: someID, macKey: macKey)
        require(readPermit(target, stored), "a link permit can't be read again")
    },
    Parser(name: "directory-record", maximumBytes: 128) { bytes in
        readDirectoryRecord(String(decoding: bytes, as: UTF8.self))
        let body = Array(bytes.prefix(20))
        for bound in [[], someID] {
            readDirectoryRecord(
                Base64URL.encode(body + HMACSHA256.authenticate(bound + body, key: macKey)[0..<16]))
        }
    },
    Parser(name: "state-record", maximumBytes: 640) { bytes in
        readStateRecord(bytes)
        let body = Array(bytes.dropLast(32))
        readStateRecord(body + HMACSHA256.authenticate(body, key: macKey))
    },
    Parser(name: "page-layout", maximumBytes: 40) { bytes in
        guard bytes.count >= 28 else { return }
        let size = Int(bytes.littleEndian(at: 0, as: UInt64.self) >> 1)
        for layout in [PageLayout(pageBytes: 512), PageLayout(pageBytes: 4096)] {
            if let found = layout.size(fromBackingSize: size) {
                require(
                    layout.backingSize(forSize: found) == size, "a hint means another size: \(size)"
                )
            }
            guard size <= PageLayout.maximumSizeBytes else { continue }
            let backing = layout.backingSize(forSize: size)
            require(
                layout.size(fromBackingSize: backing) == size, "a size has another hint: \(size)")
        }
        bytes.withUnsafeBytes { source in
            let prefix = RecordPrefix(reading: source.baseAddress! + 8)
            var record = [UInt8](repeating: 0, count: 20)
            record.withUnsafeMutableBytes { prefix.write(to: $0.baseAddress!) }
            require(
                record[12..<20].elementsEqual(source[20..<28]), "a record's prefix changes")
        }
    },
    Parser(name: "base64url", maximumBytes: 400) { bytes in
        let encoded = Base64URL.encode(bytes)
        require(encoded.utf8.count == Base64URL.encodedCount(bytes.count), "a count is wrong")
        require(Base64URL.decode(encoded) == bytes, "what is encoded decodes to something else")
        let text = String(decoding: bytes, as: UTF8.self)
        guard let decoded = Base64URL.decode(text) else { return }
        require(Base64URL.encode(decoded) == text, "two spellings of one value")
    },
]

/// The key of all MACs here.
let macKey = locked([UInt8](repeating: 7, count: 32))
/// The ID of every file and directory here.
private let someID = [UInt8](repeating: 5, count: 16)

private func readHeader(_ bytes: [UInt8]) {
    for format in VolumeFormat.allCases {
        let header = bytes.withUnsafeBytes { source in
            taken { () throws(FormatError) in
                try FileHeader(reading: source.baseAddress!, macKey: macKey, format: format)
            }
        }
        guard let header else { continue }
        var written = [UInt8](repeating: 0, count: FileHeader.bytes)
        written.withUnsafeMutableBytes {
            header.write(to: $0.baseAddress!, macKey: macKey, format: format)
        }
        require(
            written.elementsEqual(bytes[..<FileHeader.bytes]), "a file header changes: \(header)")
    }
}

private func readDirectoryRecord(_ target: String) {
    for parentID in [nil, someID] {
        let record = taken { () throws(FormatError) in
            try DirectoryRecord(linkTarget: target, macKey: macKey, parentID: parentID)
        }
        guard let record else { continue }
        require(
            record.linkTarget(macKey: macKey, parentID: parentID) == target,
            "a directory record changes: \(record)")
    }
}

private func readPlaces(_ bytes: [UInt8]) {
    let places = taken { () throws(FormatError) in
        try FilePlaces(reading: bytes, fileID: someID, macKey: macKey)
    }
    guard let places else { return }
    require(
        places.serialized(fileID: someID, macKey: macKey) == bytes, "places change: \(places)")
}

@discardableResult
private func readPermit(_ target: String, _ stored: [UInt8]) -> Bool {
    let permit = taken { () throws(FormatError) in
        try LinkPermit(linkTarget: target, for: stored, in: someID, macKey: macKey)
    }
    guard let permit else { return false }
    require(
        permit.linkTarget(for: stored, in: someID, macKey: macKey) == target,
        "a link permit changes: \(permit)")
    return true
}

private func readStateRecord(_ bytes: [UInt8]) {
    let record = taken { () throws(FormatError) in
        try VolumeStateRecord(reading: bytes, macKey: macKey)
    }
    guard let record else { return }
    require(record.serialized(macKey: macKey) == bytes, "a state record changes: \(record)")
    let copy = record.ofCopyInUse()
    require(copy.epoch >= record.epoch, "an epoch goes back")
    let again = taken { () throws(FormatError) in
        try VolumeStateRecord(reading: copy.serialized(macKey: macKey), macKey: macKey)
    }
    require(again == copy, "the record of a copy changes")
}
