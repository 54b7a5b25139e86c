import Testing

@testable import WardFUSE

/// What waits for a thread that syncs.
@Suite struct SyncJobTests {
    /// Generic, as the queue of `SyncPool` is.
    private func taken<Channel: ReplyChannel>(_ job: SyncJob<Channel>) -> [UInt64] {
        var queue = [job, job]
        queue[1].channel = job.channel.elsewhere
        return [queue.removeFirst().unique, queue.removeFirst().unique]
    }

    // Without optimisation a channel whose worker is not told was taken for no job at all.
    @Test("a job of the device's is one, whether its channel has a worker or not")
    func optional() {
        let job = SyncJob(kind: .everything, unique: 7, channel: DeviceChannel(descriptor: -1))
        #expect(taken(job) == [7, 7])
    }
}
