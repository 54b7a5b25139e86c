import Glibc
import Testing
import WardFormat
import WardSystem

@testable import WardVolume

/// Compares random operations on one file with the same on an array of bytes. A seed replays a run.
@Suite struct ContentModelTests {
    @Test(arguments: [(4096, UInt64(1)), (4096, 2), (4096, 3), (512, 4), (512, 5), (512, 6)])
    func randomOperationsAgreeWithAnArray(pageBytes: Int, seed: UInt64) throws {
        let harness = try VolumeHarness(pageBytes: pageBytes)
        var random = SeededGenerator(seed: seed)
        var model: [UInt8] = []
        var (node, handle) = try harness.create("file")
        let limit = pageBytes * 12
        for step in 0..<600 {
            let offset = Int.random(in: 0..<limit, using: &random)
            let count = Int.random(in: 1..<(pageBytes * 3), using: &random)
            switch Int.random(in: 0..<12, using: &random) {
            case 0...3:
                let data = (0..<count).map { _ in UInt8.random(in: 0...255, using: &random) }
                try harness.write(handle, offset, data)
                if model.count < offset + count {
                    model += [UInt8](repeating: 0, count: offset + count - model.count)
                }
                model.replaceSubrange(offset..<(offset + count), with: data)
            case 4:  // append, the most common operation
                let data = (0..<count).map { _ in UInt8.random(in: 0...255, using: &random) }
                try harness.write(handle, model.count, data)
                model += data
            case 5:
                try harness.setSize(node, handle, offset)
                if offset <= model.count {
                    model.removeLast(model.count - offset)
                } else {
                    model += [UInt8](repeating: 0, count: offset - model.count)
                }
            case 6:
                try harness.volume.allocate(
                    handle, mode: 3, offsetBytes: UInt64(offset), lengthBytes: UInt64(count),
                    caller: harness.caller, harness.context)
                for index in offset..<max(offset, min(offset + count, model.count)) {
                    model[index] = 0
                }
            case 7:
                try harness.volume.allocate(
                    handle, mode: 0x10, offsetBytes: UInt64(offset), lengthBytes: UInt64(count),
                    caller: harness.caller, harness.context)
                if model.count < offset + count {
                    model += [UInt8](repeating: 0, count: offset + count - model.count)
                }
                for index in offset..<(offset + count) { model[index] = 0 }
            case 8:
                try harness.volume.allocate(
                    handle, mode: 0, offsetBytes: UInt64(offset), lengthBytes: UInt64(count),
                    caller: harness.caller, harness.context)
                if model.count < offset + count {
                    model += [UInt8](repeating: 0, count: offset + count - model.count)
                }
            case 9:
                harness.volume.release(handle, harness.context)
                harness.volume.forget(node, lookups: 1)
                if Bool.random(using: &random) { try harness.reopen() }
                node = try harness.lookup("file").node
                handle = try harness.open(node)
            default: break
            }
            #expect(try harness.size(node) == model.count, "size after step \(step), seed \(seed)")
            let from = Int.random(in: 0..<limit, using: &random)
            let wanted =
                from < model.count ? Array(model[from..<min(from + count, model.count)]) : []
            let got = try harness.read(handle, from, count)
            try #require(got == wanted, "content at \(from) after step \(step), seed \(seed)")
        }
        try #require(try harness.read(handle, 0, 1 << 20) == model)
        harness.volume.release(handle, harness.context)
        #expect(harness.events.integrityFailures.isEmpty)
        try harness.volume.close()
    }

    @Test(arguments: [512, 4096])
    func everySizeAroundPageBordersSurvivesClosing(pageBytes: Int) throws {
        let harness = try VolumeHarness(pageBytes: pageBytes)
        let layout = PageLayout(pageBytes: pageBytes)
        for size in [
            1, layout.firstCapacity - 1, layout.firstCapacity, layout.firstCapacity + 1,
            layout.firstCapacity + layout.capacity, layout.firstCapacity + layout.capacity + 1,
            100_000,
        ] {
            let (node, handle) = try harness.create("f\(size)")
            let data = (0..<size).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ size) }
            try harness.write(handle, 0, data)
            harness.volume.release(handle, harness.context)
            #expect(try harness.size(node) == size)
            let again = try harness.open(node)
            #expect(try harness.read(again, 0, size + 10) == data)
            harness.volume.release(again, harness.context)
        }
    }
}

/// SplitMix64: small, seeded, the same on every machine.
struct SeededGenerator: RandomNumberGenerator {
    private var state: UInt64
    init(seed: UInt64) { state = seed }
    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var z = state
        z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
        z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
        return z ^ (z >> 31)
    }
}
