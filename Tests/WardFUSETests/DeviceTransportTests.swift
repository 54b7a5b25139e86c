import CWardLinux
import Foundation
import Glibc
import Synchronization
import Testing
import WardSystem

@testable import WardFUSE

/// Two workers at one end of a socket pair; the test plays the kernel at the other end.
@Suite(.serialized) struct DeviceTransportTests {
    /// The scheduling policies of the workers when they ended, sched(7).
    private final class Ends: Sendable {
        let policies = Mutex<[Int32]>([])
    }

    private final class Device: Sendable {
        private let ends = Ends()
        /// Whether the last request for a sync would have held up other requests.
        let syncHeldUpOthers = Atomic<Bool>(false)
        /// Bytes of its own request, and of a longer one before, that the last sync found unwiped.
        let leftAtSync = Atomic<Int>(-1)
        /// Whether a lock would have waited at the last request.
        let lockWaits = Atomic<Bool>(false)
        let share: DeviceShare
        private let kernel: OwnedDescriptor
        private let requests = Atomic<UInt64>(0)
        private let threads = Mutex<[SystemThread]>([])

        init() throws {
            var ends: (Int32, Int32) = (-1, -1)
            let made = withUnsafeMutablePointer(to: &ends) {
                $0.withMemoryRebound(to: Int32.self, capacity: 2) {
                    socketpair(AF_UNIX, Int32(SOCK_SEQPACKET.rawValue), 0, $0)
                }
            }
            try #require(made == 0)
            kernel = OwnedDescriptor(adopting: ends.0)
            #expect(ward_fcntl_int(ends.1, F_SETFL, O_NONBLOCK) == 0)
            // So that the machine's load changes nothing: no worker starves, each request is quick,
            // and the worker that serves alone goes on.
            let sole = SoleWorker(watchNanoseconds: 20_000_000) { _ in
                ThreadUse(isRunnable: false, nanoseconds: 0, turns: 0)
            }
            share = DeviceShare(
                device: ends.1, pollingDevice: -1, sole: sole, quickNanoseconds: .max)
            share.sole.mayYield.store(
                share.maySpareWorkers && Yielding.isPossible(), ordering: .sequentiallyConsistent)
        }

        func begin() throws {
            for number in 0..<2 {
                let (share, ends) = (share, ends)
                let thread = try SystemThread("serves") { [self] in
                    let progress = WipeProgress()
                    guard let transport = try? DeviceTransport(share, number: number, progress)
                    else { return }
                    while let (request, channel) = transport.nextRequest(),
                        request.header.opcode != FUSE_DESTROY.rawValue
                    {
                        guard request.header.opcode != FUSE_RELEASE.rawValue, !request.isForget
                        else { continue }
                        if request.isSync {
                            syncHeldUpOthers.store(channel.holdsUpOthers, ordering: .relaxed)
                            transport.willSync()
                            // The buffer is longer than the last request.
                            let buffer = UnsafeRawBufferPointer(
                                start: request.body.rest.baseAddress, count: 8192)
                            leftAtSync.store(buffer.count { $0 != 0 }, ordering: .relaxed)
                        }
                        lockWaits.store(
                            progress.met.load(ordering: .relaxed) != .max, ordering: .relaxed)
                        channel.complete(request.header.unique)
                    }
                    share.sole.workerEnds()
                    ends.policies.withLock { $0.append(sched_getscheduler(0)) }
                }
                threads.withLock { $0.append(thread) }
            }
        }

        func end() {
            for _ in 0..<2 { ask(FUSE_DESTROY) }
            for thread in threads.withLock({ $0 }) { thread.join() }
            // The worker on watch, too, is an ordinary thread again.
            #expect(ends.policies.withLock { $0 } == [SCHED_OTHER, SCHED_OTHER])
        }

        /// Sends a request of the calling thread, or of `program`.
        func ask(
            _ code: fuse_opcode, of program: UInt32 = UInt32(ward_gettid()), content: [UInt8] = []
        ) {
            var header = fuse_in_header()
            header.len = UInt32(MemoryLayout<fuse_in_header>.size + content.count)
            header.opcode = code.rawValue
            header.unique = requests.add(1, ordering: .relaxed).newValue
            // The kernel sends these without a process: no program waits for them.
            let isOfNobody = code == FUSE_RELEASE || code == FUSE_FORGET
            header.pid = isOfNobody ? 0 : program
            let message = withUnsafeBytes(of: &header) { Array($0) } + content
            #expect(write(kernel.rawValue, message, message.count) == message.count)
        }

        func awaitAnswer() {
            var reply = fuse_out_header()
            let count = withUnsafeMutableBytes(of: &reply) {
                read(kernel.rawValue, $0.baseAddress!, $0.count)
            }
            #expect(count == MemoryLayout<fuse_out_header>.size && reply.error == 0)
        }

        var isServedAlone: Bool {
            share.sole.isServed(by: 0) || share.sole.isServed(by: 1)
        }

        var givesWay: Bool { share.sole.turn.load(ordering: .relaxed) & 1 == 1 }

        /// One worker serves alone, and gives way if it may.
        private var isFollowed: Bool {
            isServedAlone && (givesWay || !share.sole.mayYield.load(ordering: .relaxed))
        }

        /// Asks, one request after the other, until one worker serves alone. Calls `between` after
        /// each answer.
        func untilFollowed(_ code: fuse_opcode = FUSE_LOOKUP, between: () -> Void = {}) {
            var asked = 0
            while !isFollowed {
                ask(code)
                awaitAnswer()
                between()
                asked += 1
                // On a busy machine the worker gets no further than the answer before the next
                // request is there.
                if asked % (ServingLimits.mostWaiting / 2) == 0 { usleep(200) }
            }
        }
    }

    private func using(_ body: (Device) throws -> Void) throws {
        let device = try Device()
        guard device.share.maySpareWorkers else { return }
        try device.begin()
        defer { device.end() }
        try body(device)
    }

    @Test("one worker serves a program that waits for each answer, and gives way to it")
    func serial() throws {
        try using { device in
            device.untilFollowed()
        }
    }

    @Test("what nobody waits for is no company", arguments: [FUSE_RELEASE, FUSE_FORGET])
    func unanswered(_ code: fuse_opcode) throws {
        try using { device in
            var asked = 0
            device.untilFollowed(FUSE_WRITE) {
                asked += 1
                if asked % 3 == 0 { device.ask(code) }
            }
        }
    }

    @Test(
        "a sync of the only program is no company, and beside another program it is left to another thread"
    )
    func syncs() throws {
        try using { device in
            var asked = 0
            device.untilFollowed(FUSE_WRITE) {
                asked += 1
                guard asked % 8 == 0 else { return }
                device.ask(FUSE_FSYNC)
                device.awaitAnswer()
            }
            for isOther in [false, true, false] {
                var held: Bool?
                // A busy machine makes two requests of different programs look far apart in time,
                // and delays the moment when one program counts as alone.
                for _ in 0..<1000 where held != isOther {
                    usleep(1000)
                    device.untilFollowed()
                    if isOther {
                        device.ask(FUSE_LOOKUP, of: UInt32(getppid()))
                        device.awaitAnswer()
                    }
                    device.ask(FUSE_FSYNC)
                    device.awaitAnswer()
                    held = device.syncHeldUpOthers.load(ordering: .relaxed)
                }
                #expect(held == isOther)
            }
        }
    }

    @Test("nothing is left of what was asked while it is synced, and no lock waits for that")
    func wipedBySync() throws {
        try using { device in
            device.untilFollowed()
            for (code, bytes, waits) in [
                (FUSE_WRITE, 4096, true), (FUSE_FSYNC, 16, false), (FUSE_LOOKUP, 16, true),
                (FUSE_FSYNC, 16, false),
            ] {
                device.ask(code, content: [UInt8](repeating: 0x5a, count: bytes))
                device.awaitAnswer()
                let didWait = device.lockWaits.load(ordering: .relaxed)
                #expect(didWait == waits)
                if !waits { #expect(device.leftAtSync.load(ordering: .relaxed) == 0) }
            }
        }
    }

    @Test("one thread with many requests under way is served by all")
    func manyOfOne() throws {
        try using { device in
            device.untilFollowed()
            for _ in 0..<16 { device.ask(FUSE_READ) }
            while device.isServedAlone {
                device.awaitAnswer()
                device.ask(FUSE_READ)
            }
            for _ in 0..<16 { device.awaitAnswer() }
            // One request at a time again.
            device.untilFollowed()
        }
    }

    @Test(
        "after a while without requests all sleep at the device, and the first one that comes is nobody's alone"
    )
    func idle() throws {
        try using { device in
            device.untilFollowed()
            while device.isServedAlone || device.givesWay { usleep(1000) }
            device.ask(FUSE_LOOKUP)
            device.awaitAnswer()
            #expect(!device.isServedAlone && !device.givesWay)
        }
    }
}
