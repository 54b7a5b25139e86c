import CWardLinux
import Foundation
import Glibc
import Synchronization
import Testing
import WardCrypto
import WardFormat
import WardKeys
import WardSystem
import WardVolume

import func WardTestSupport.comesTrue

@testable import WardFUSE

/// Jobs that wait for a thread that syncs.
@Suite struct SyncJobTests {
    /// Takes two jobs from a generic queue, as `SyncPool` has it.
    private func taken<Channel: ReplyChannel>(_ job: SyncJob<Channel>) -> [UInt64] {
        var queue = [job, job]
        queue[1].channel = job.channel.elsewhere
        return [queue.removeFirst().unique, queue.removeFirst().unique]
    }

    // Without optimisation a job whose channel has no worker was once misread as nil.
    @Test("a job of the device's is one, whether its channel has a worker or not")
    func optional() {
        let job = SyncJob(kind: .everything, unique: 7, channel: DeviceChannel(descriptor: -1))
        #expect(taken(job) == [7, 7])
    }

    /// The thread that answered.
    private final class Answer: Sendable {
        let thread = Atomic<Int32>(0)
    }

    private struct Channel: ReplyChannel {
        let answer: Answer
        var holdsUpOthers = false

        func send(_ message: UnsafeRawBufferPointer) -> Bool {
            #expect(message.loadUnaligned(as: fuse_out_header.self).error == 0)
            answer.thread.store(ward_gettid(), ordering: .sequentiallyConsistent)
            return true
        }

        func send(_ head: UnsafeRawBufferPointer, _ payload: UnsafeRawBufferPointer) -> Bool {
            send(head)
        }
    }

    private final class Silence: VolumeObserver {
        func volumeReports(_ event: VolumeEvent) {}
    }

    @Test("what would hold up others is synced by another thread, all else by the one that took it")
    func threads() throws {
        let directory = NSTemporaryDirectory() + "ward-sync-" + UUID().uuidString
        try FileManager.default.createDirectory(
            atPath: directory, withIntermediateDirectories: false)
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let parameters = VolumeParameters(uuid: SystemRandom.bytes(16), pageBytes: 4096)
        let key = try SecretBytes(random: 32)
        try Volume.create(
            backingPath: directory, parameters: parameters, volumeKey: key, defaultClass: .none)
        let volume = try Volume(
            backingPath: directory, parameters: parameters, volumeKey: key,
            keyring: ClassKeyring(classBPublicKey: SystemRandom.bytes(32)), readOnly: false,
            observer: Silence())
        let context = try WorkerContext(allocatingFor: volume)
        let pool = SyncPool<Channel>(volume, workers: 2)
        let own = ward_gettid()
        for holdsUpOthers in [false, true, false, true] {
            let answer = Answer()
            let channel = Channel(answer: answer, holdsUpOthers: holdsUpOthers)
            pool.submit(SyncJob(kind: .everything, unique: 1, channel: channel), context)
            #expect(
                comesTrue { answer.thread.load(ordering: .sequentiallyConsistent) != 0 },
                "the job is answered")
            let thread = answer.thread.load(ordering: .relaxed)
            #expect((thread == own) != holdsUpOthers)
        }
        pool.end()
        try volume.close()
    }
}
