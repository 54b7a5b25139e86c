import Testing
import WardFormat
import WardSystem

@testable import WardVolume

/// The time at which refused reads are answered.
@Suite struct RefusalTests {
    @Test(
        "A thousand in a row at once, then each a millisecond later, up to fifty; a pause begins anew"
    )
    func delays() {
        let refusals = Refusals()
        let count = Refusals.Count()
        let other = Refusals.Count()
        var now: UInt64 = 5_000_000_000
        for _ in 0..<1000 {
            #expect(refusals.delay(count, now: now) == 0)
            now += 20_000
        }
        for milliseconds in 1...60 {
            #expect(
                refusals.delay(count, now: now) == UInt64(min(milliseconds, 50)) * 1_000_000)
            now += 50_000_000
        }
        #expect(refusals.delay(other, now: now) == 0)
        #expect(refusals.delay(count, now: now + 2_000_000_000) == 0)
    }

    @Test("A lock and an unlock let all go, and what is refused then is a new row")
    func letGo() throws {
        let harness = try VolumeHarness(defaultClass: .complete)
        let (_, handle) = try harness.create("f")
        try harness.write(handle, 0, [1])
        let (before, word) = (
            harness.volume.refusals.generation, harness.volume.refusals.word.value
        )
        harness.lock()
        let locked = harness.volume.refusals.generation
        #expect(locked != before && harness.volume.refusals.word.value != word)
        for _ in 0..<1000 { _ = harness.volume.refusedReadDelay(handle) }
        #expect(harness.volume.refusedReadDelay(handle) > 0)
        try harness.unlock()
        #expect(harness.volume.refusals.generation != locked)
        #expect(harness.volume.refusedReadDelay(handle) == 0)
        harness.volume.release(handle, harness.context)
    }
}
