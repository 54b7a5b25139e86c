import Foundation
import Testing
import WardCrypto
import WardSystem

@testable import WardFormat
@testable import WardKeys
@testable import WardVolume

/// ward's parsers against Tests/Vectors, which another implementation made from the format
/// documents.
@Suite struct StructureVectorTests {
    @Test func derivations() throws {
        let file = try VectorFile("derivations")
        let key = try secret(try file.common.bytes("volumeKey"))
        for vector in file.vectors {
            let derived = try KeyDerivation.derive(
                from: key, info: try vector.text("info"), count: try vector.number("count"))
            #expect(try derived.exposed() == vector.bytes("derived"), "\(vector.name)")
        }
        let keys = try VolumeKeys(volumeKey: key, format: .version1)
        let root = try #require(file.vectors.first { $0.name == "ward root directory" })
        #expect(try keys.rootID == root.bytes("derived"))
    }

    private func fields(_ header: FileHeader) -> [String] {
        [
            "class \(header.protectionClass.rawValue)", "sparse \(header.isSparse)",
            "\(header.fileID)", "\(header.directoryID)", "\(header.wrappedKey)",
            "capsule \(header.capsuleID)",
        ]
    }

    @Test func fileHeaders() throws {
        let file = try VectorFile("file-headers")
        let key = try secret(try file.common.bytes("headerKey"))
        let seals = try secret(try file.common.bytes("sealKey"))
        for vector in file.vectors {
            let bytes = try vector.bytes()
            let format = try vector.format()
            let found = try Reading.of {
                fields(
                    try bytes.withUnsafeBytes {
                        try FileHeader(reading: $0.baseAddress!, macKey: key, format: format)
                    })
            }
            let wanted = try Reading.wanted(by: vector) {
                [
                    "class \(try vector.number("class"))", "sparse \(try vector.flag("sparse"))",
                    "\(try vector.bytes("fileID"))", "\(try vector.bytes("directoryID"))",
                    "\(try vector.bytes("wrappedKey"))",
                    "capsule \(vector.has("capsuleID") ? try vector.bytes("capsuleID") : Capsule.noID)",
                ]
            }
            #expect(found == wanted, "\(vector.name)")
            guard vector.error == nil else { continue }
            // The bytes that are written equal the vector's.
            let header = try bytes.withUnsafeBytes {
                try FileHeader(reading: $0.baseAddress!, macKey: key, format: format)
            }
            var written = [UInt8](repeating: 0xFF, count: FileHeader.bytes)
            written.withUnsafeMutableBytes {
                header.write(to: $0.baseAddress!, macKey: key, format: format)
            }
            #expect(written == bytes, "\(vector.name), written")
            let isSealed = ClassSeal.verify(header.seal, of: header.sealedPart, key: seals)
            let mayBeSealed = try format >= .version2 && vector.flag("sealed")
            #expect(isSealed == mayBeSealed, "\(vector.name), seal")
        }
    }

    @Test func fileKeys() throws {
        let file = try VectorFile("file-keys")
        let plain = try keyring(file.common)
        let bound = try keyring(file.common)
        let volumeKey = try secret(try file.common.bytes("volumeKey"))
        bound.bindClassB(to: try KeyDerivation.derive(from: volumeKey, info: "ward class B"))
        #expect(try bound.capsulePublicKey() == file.common.bytes("capsulePublicKey"))
        for vector in file.vectors {
            let keyring = try vector.format() == .version1 ? plain : bound
            let ciphertext = vector.has("capsule") ? try vector.bytes("capsule") : []
            let capsule =
                ciphertext.isEmpty
                ? nil : try Capsule(reading: ciphertext, id: vector.bytes("capsuleID"))
            let number = UInt8(try vector.number("class"))
            let protectionClass = try #require(ProtectionClass(rawValue: number))
            var key: [UInt8]?
            do throws(KeyringError) {
                let wrapped = (try? vector.bytes("wrappedKey")) ?? []
                key = try wrapped.withUnsafeBytesTyped { bytes throws(KeyringError) in
                    try keyring.unwrap(bytes, for: protectionClass, capsule: capsule).exposed()
                }
            } catch {
                #expect(error == .authenticationFailed, "\(vector.name)")
            }
            if vector.error == nil {
                #expect(try key == vector.bytes("fileKey"), "\(vector.name)")
            } else {
                #expect(key == nil, "\(vector.name)")
            }
        }
    }

    @Test func directoryRecords() throws {
        let file = try VectorFile("directory-records")
        let key = try secret(try file.common.bytes("recordKey"))
        let seals = try secret(try file.common.bytes("sealKey"))
        for vector in file.vectors {
            let target = try vector.text("target")
            let parentID = try vector.has("parentID") ? vector.bytes("parentID") : nil
            let found = try Reading.of {
                let record = try DirectoryRecord(
                    linkTarget: target, macKey: key, parentID: parentID)
                #expect(
                    record.linkTarget(macKey: key, parentID: parentID) == target,
                    "\(vector.name), written")
                if let parentID {
                    let part = record.sealedPart(parentID: parentID)
                    #expect(
                        try ClassSeal.verify(record.seal, of: part, key: seals)
                            == vector.flag("sealed"), "\(vector.name), seal")
                }
                #expect(
                    DirectoryRecord.format(ofRoot: target)
                        == (parentID == nil ? .version1 : .version2), "\(vector.name), format")
                return [
                    "\(record.protectionClass.rawValue)", "\(record.directoryID)",
                    "\(record.isSynchronised)",
                ]
            }
            let wanted = try Reading.wanted(by: vector) {
                [
                    "\(try vector.number("class"))", "\(try vector.bytes("directoryID"))",
                    "\(try vector.flag("synchronised"))",
                ]
            }
            #expect(found == wanted, "\(vector.name)")
        }
    }

    @Test func places() throws {
        let file = try VectorFile("places")
        let key = try secret(try file.common.bytes("placesKey"))
        for vector in file.vectors {
            let bytes = try vector.bytes()
            let fileID = try vector.bytes("fileID")
            let found = try Reading.of {
                let places = try FilePlaces(reading: bytes, fileID: fileID, macKey: key)
                #expect(
                    places.serialized(fileID: fileID, macKey: key) == bytes,
                    "\(vector.name), written")
                return places.directoryIDs.map { "\($0)" }
            }
            let wanted = try Reading.wanted(by: vector) {
                try vector.texts("directoryIDs").map { "\(try Vector.bytes($0))" }
            }
            #expect(found == wanted, "\(vector.name)")
        }
    }

    /// The permits of links that open; `VolumeVectorTests.symbolicLinks` has the others, too.
    @Test func linkPermits() throws {
        let file = try VectorFile("symbolic-links")
        let keys = try VolumeKeys(
            volumeKey: try secret(try file.common.bytes("volumeKey")), format: .version2)
        let vectors = file.vectors.filter { $0.error == nil && $0.has("permit") }
        #expect(!vectors.isEmpty)
        for vector in vectors {
            let stored = Array(try vector.text("target").utf8)
            let directoryID = try vector.bytes("directoryID")
            let target = try vector.part("permit").text("target")
            #expect(try LinkPermit.name(of: stored) == vector.part("permit").text("name"))
            let permit = try LinkPermit(
                linkTarget: target, for: stored, in: directoryID, macKey: keys.linkPermits)
            #expect(
                permit.linkTarget(for: stored, in: directoryID, macKey: keys.linkPermits) == target,
                "\(vector.name), written")
        }
    }

    @Test func stateRecords() throws {
        let file = try VectorFile("state-records")
        let key = try secret(try file.common.bytes("stateKey"))
        for vector in file.vectors {
            let bytes = try vector.bytes()
            let found = try Reading.of {
                let record = try VolumeStateRecord(reading: bytes, macKey: key)
                #expect(record.serialized(macKey: key) == bytes, "\(vector.name), written")
                return [
                    "\(record.format)", "\(record.isInUse)", "\(record.epoch)",
                    "\(record.doubtful.map { [Int($0.lowerBound), Int($0.upperBound)] })",
                ]
            }
            let wanted = try Reading.wanted(by: vector) {
                [
                    "\(try vector.format())", "\(try vector.flag("inUse"))",
                    "\(try vector.number("epoch"))", "\(try vector.spans("doubtful"))",
                ]
            }
            #expect(found == wanted, "\(vector.name)")
        }
    }

    @Test func modes() throws {
        for vector in try VectorFile("modes").vectors {
            let backing = try #require(mode_t(try vector.text("backing"), radix: 8))
            let wanted = try #require(mode_t(try vector.text("true"), radix: 8))
            var record: UInt16?
            if vector.has("attribute") {
                let bytes = try vector.bytes("attribute")
                record = UInt16(bytes[0]) | UInt16(bytes[1]) << 8
            }
            let found =
                BackingMode.isMarked(backing)
                ? BackingMode.trueMode(ofMarked: backing, record: record) : backing
            #expect(found == wanted, "\(vector.name)")
        }
    }

    @Test func sizes() throws {
        for vector in try VectorFile("sizes").vectors {
            let layout = PageLayout(pageBytes: try vector.number("pageBytes"))
            let size = try vector.number("size")
            let pages = try vector.number("pages")
            let backing = try vector.number("backingSize")
            #expect(layout.pageCount(forSize: size) == pages, "\(vector.name)")
            #expect(layout.backingSize(forSize: size) == backing, "\(vector.name)")
            #expect(layout.size(fromBackingSize: backing) == size, "\(vector.name)")
        }
    }
}

/// A keyring with the class keys that all vectors share.
func keyring(_ common: Vector) throws -> ClassKeyring {
    let keyring = ClassKeyring(classBPublicKey: try common.bytes("classBPublicKey"))
    for (number, key) in try common.keys("classKeys") {
        guard let protectionClass = ProtectionClass(rawValue: UInt8(number)) else {
            throw VectorError("no class \(number)")
        }
        keyring.install(try secret(key), for: protectionClass)
    }
    return keyring
}
