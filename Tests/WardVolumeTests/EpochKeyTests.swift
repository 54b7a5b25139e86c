import Foundation
import Testing
import WardCrypto
import WardFormat
import WardKeys
import WardSystem

@testable import WardVolume

/// Format 2: each page is sealed under the key of its epoch (docs/format.md §4).
@Suite("Keys of epochs")
struct EpochKeyTests {
    /// A file of three pages, each written in another epoch.
    private func written(_ harness: VolumeHarness) throws -> (HandleID, [UInt8]) {
        let (_, handle) = try harness.create("f")
        let content = (0..<10_000).map { UInt8(truncatingIfNeeded: $0 / 7) }
        let layout = harness.volume.layout
        try harness.write(handle, 0, content)
        for page in 0..<3 {
            let start = layout.start(ofPage: page)
            try harness.volume.durablePoint()
            try harness.write(handle, start, [content[start]])
        }
        return (handle, content)
    }

    /// The backing path of the only file.
    private func backingPath(_ harness: VolumeHarness) throws -> String {
        let names = try FileManager.default.contentsOfDirectory(atPath: harness.directory)
        let stored = try #require(names.first { !$0.contains(".") && $0 != "README" })
        return harness.directory + "/" + stored
    }

    private func record(_ page: Int, _ harness: VolumeHarness) throws -> [UInt8] {
        let layout = harness.volume.layout
        let file = try Data(contentsOf: URL(fileURLWithPath: backingPath(harness)))
        let at = page * layout.pageBytes + layout.recordOffset(ofPage: page)
        return Array(file[at..<(page + 1) * layout.pageBytes])
    }

    /// Whether a key opens a record as page `page`.
    private func opens(
        _ record: [UInt8], _ page: Int, _ key: borrowing SecretBytes
    ) throws -> Bool {
        let cipher = try AEADContext(.aes256GCM, key: key)
        let count = record.count - PageLayout.recordOverheadBytes
        var plain = [UInt8](repeating: 0, count: count)
        let data =
            withUnsafeBytes(of: UInt64(page).littleEndian, Array.init) + record[12..<20]
        return record.withUnsafeBytes { record in
            cipher.open(
                record.baseAddress! + 20, count: count, to: &plain,
                tag: record.baseAddress! + 20 + count, nonce: record.baseAddress!,
                associatedData: data, associatedDataBytes: data.count)
        }
    }

    @Test("a page opens by its own epoch's key alone, and reads back after a reopening")
    func pages() throws {
        let harness = try VolumeHarness(format: .version2)
        let (handle, content) = try written(harness)
        #expect(try harness.read(handle, 0, 20_000) == content)
        let header = try Data(contentsOf: URL(fileURLWithPath: backingPath(harness)))
            .withUnsafeBytes {
                try FileHeader(
                    reading: $0.baseAddress!, macKey: harness.volume.keys.headers, format: .version2
                )
            }
        var unwrapped: SecretBytes?
        try header.wrappedKey.withUnsafeBytesTyped { bytes throws(KeyringError) in
            unwrapped = try harness.volume.keyring.unwrap(bytes, for: header.protectionClass)
        }
        guard let fileKey = unwrapped.take() else { throw Errno.ioError }
        let records = try (0..<3).map { try record($0, harness) }
        let prefixes = records.map { record in
            record.withUnsafeBytes { RecordPrefix(reading: $0.baseAddress!) }
        }
        #expect(Set(prefixes.map(\.epoch)).count == 3)
        for page in 0..<3 {
            #expect(prefixes[page].hasEpochKey)
            #expect(try !opens(records[page], page, fileKey))
            for other in prefixes {
                let key = try PageKey.derive(from: fileKey, epoch: other.epoch)
                #expect(
                    try opens(records[page], page, key) == (other.epoch == prefixes[page].epoch))
            }
        }
        harness.volume.release(handle, harness.context)
        try harness.reopen()
        let again = try harness.open(harness.lookup("f").node)
        #expect(try harness.read(again, 0, 20_000) == content)
    }

    @Test("an epoch or a flag that was changed on the disk is damage of that page alone")
    func changes() throws {
        for offset in [12, 18] {
            let harness = try VolumeHarness(format: .version2)
            let (handle, content) = try written(harness)
            harness.volume.release(handle, harness.context)
            try harness.volume.close()
            let layout = harness.volume.layout
            let url = URL(fileURLWithPath: try backingPath(harness))
            var changed = try Data(contentsOf: url)
            changed[layout.pageBytes + offset] ^= 2
            try changed.write(to: url)
            try harness.reopen(clean: false)
            let again = try harness.open(harness.lookup("f").node)
            let first = layout.start(ofPage: 1), second = layout.start(ofPage: 2)
            #expect(try harness.read(again, 0, first) == Array(content[..<first]))
            #expect(throws: Errno.ioError) { try harness.read(again, first, 1) }
            #expect(try harness.read(again, second, 9_999) == Array(content[second...]))
        }
    }

    @Test("format 1 has neither the flag nor the key")
    func formatOne() throws {
        let harness = try VolumeHarness(format: .version1)
        _ = try written(harness)
        for page in 0..<3 {
            let record = try record(page, harness)
            #expect(record.withUnsafeBytes { !RecordPrefix(reading: $0.baseAddress!).hasEpochKey })
        }
    }
}
