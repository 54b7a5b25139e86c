import Foundation
import Glibc
import Synchronization
import Testing
import WardFormat
import WardSystem

@testable import WardVolume

/// What goes wrong only at an edge: a thread in between, a call that fails half-way, a number near its limit.
@Suite struct EdgeTests {
    @Test func statMayMeetTheLastClose() throws {
        let harness = try VolumeHarness()
        let (node, handle) = try harness.create("file")
        try harness.write(handle, 0, [1])
        harness.volume.release(handle, harness.context)
        let volume = harness.volume
        let caller = harness.caller
        let isDone = Atomic<Bool>(false)
        let group = DispatchGroup()
        for _ in 0..<2 {
            DispatchQueue.global().async(group: group) {
                let context = WorkerContext(volume: volume)
                while !isDone.load(ordering: .relaxed) {
                    _ = try? volume.attributes(of: node, handle: nil, caller: caller, context)
                }
            }
        }
        for _ in 0..<20_000 {
            harness.volume.release(try harness.open(node), harness.context)
        }
        isDone.store(true, ordering: .relaxed)
        group.wait()
        #expect(try harness.size(node) == 1)
    }

    @Test(arguments: [512, 4096])
    func sizesNearTheLimitAreRefused(pageBytes: Int) throws {
        let harness = try VolumeHarness(pageBytes: pageBytes)
        let (node, handle) = try harness.create("file")
        for size in [Int.max, Int.max - (1 << 41), Int.max / 8 * 7, 1 << 61] {
            #expect(throws: Errno.fileTooLarge) { try harness.setSize(node, handle, size) }
            #expect(throws: Errno.fileTooLarge) { try harness.write(handle, size - 1, [1]) }
            #expect(try harness.size(node) == 0, "nothing was added")
            try harness.write(handle, 0, [1])
            #expect(throws: (any Error).self) {
                try harness.volume.allocate(
                    handle, mode: 1, offsetBytes: UInt64(size - 1),
                    lengthBytes: 1, caller: harness.caller, harness.context)
            }
            try harness.setSize(node, handle, 0)
        }
        harness.volume.release(handle, harness.context)
    }

    @Test func listingTheRootLeavesTheStateRecordAlone() throws {
        let storage = FailingStorage()
        let harness = try VolumeHarness(storage: storage)
        nonisolated(unsafe) let lister = harness
        storage.onChange { if $0 == "renameat" || $0 == "fsync" { _ = try? lister.names() } }
        try harness.volume.durablePoint()
        storage.onChange(nil)
    }
}
