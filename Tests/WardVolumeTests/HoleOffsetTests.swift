import CWardLinux
import Glibc
import Testing
import WardFormat
import WardSystem

@testable import WardVolume

/// `SEEK_DATA` and `SEEK_HOLE` answer as on ext4, in whole blocks of 4,096 bytes.
@Suite struct HoleOffsetTests {
    private func map(
        _ harness: VolumeHarness, _ file: HandleID, _ offset: Int, _ whence: Int32
    ) -> Int? {
        let found = try? harness.volume.seek(
            file, offsetBytes: UInt64(offset), whence: whence, caller: harness.caller,
            harness.context)
        return found.map { Int($0) }
    }

    @Test("Borders are blocks', no byte of data is in a hole, and both answers agree")
    func blocks() throws {
        for pageBytes in [4096, 512] {
            let harness = try VolumeHarness(pageBytes: pageBytes)
            let (_, file) = try harness.create("image")
            let size = 3 << 20
            var content = [UInt8](repeating: 0, count: size)
            func write(_ offset: Int, _ count: Int) throws {
                let bytes = [UInt8](repeating: 7, count: count)
                try harness.write(file, offset, bytes)
                content.replaceSubrange(offset..<offset + count, with: bytes)
            }
            try write(size - 1, 1)
            var random = UInt64(pageBytes)
            for _ in 0..<40 {
                random = random &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
                let offset = Int(random >> 33) % (size - 70_000)
                try write(offset, Int(random >> 20) % 9000 + 1)
            }
            // Neighbours with a hole of one backing block between them.
            for index in 0..<20 { try write(100_000 + index * 9000, 700) }
            var isData: [Bool] = []
            for block in 0...(size - 1) / 4096 {
                let offset = block * 4096
                let end = min(offset + 4096, size)
                let found = map(harness, file, offset, SEEK_DATA)
                let hole = map(harness, file, offset, SEEK_HOLE)
                isData.append(found == offset)
                #expect((found == offset) != (hole == offset), "\(pageBytes): \(offset)")
                if found != offset {
                    #expect(content[offset..<end].allSatisfy { $0 == 0 }, "\(pageBytes): \(offset)")
                }
                for inside in [offset + 1, offset + 511, offset + 2048, end - 1] where inside < end
                {
                    #expect((map(harness, file, inside, SEEK_DATA) == inside) == isData[block])
                    #expect((map(harness, file, inside, SEEK_HOLE) == inside) != isData[block])
                }
            }
            #expect(isData.contains(false) && isData.contains(true))
            for block in isData.indices {
                let nextData = isData[block...].firstIndex(of: true).map { $0 * 4096 }
                let nextHole = isData[block...].firstIndex(of: false).map { $0 * 4096 } ?? size
                #expect(map(harness, file, block * 4096, SEEK_DATA) == nextData, "\(pageBytes)")
                #expect(map(harness, file, block * 4096, SEEK_HOLE) == nextHole, "\(pageBytes)")
            }
            #expect(map(harness, file, size, SEEK_DATA) == nil)
            harness.volume.release(file, harness.context)
        }
    }
}
