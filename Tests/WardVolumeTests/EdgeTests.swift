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
}
