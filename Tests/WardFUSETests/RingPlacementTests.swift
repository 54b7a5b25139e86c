import CWardLinux
import Testing
import WardSystem

@testable import WardFUSE

/// Where the workers of FUSE over io_uring run (decision 0066).
@Suite struct RingPlacementTests {
    /// A worker of the queue of one CPU, on the calling thread.
    private struct Worker {
        private let placement: RingPlacement
        private var policy = ServingPolicy(machine: .read())

        init?(cpu: UInt16) {
            guard let placement = RingPlacement(cpu: cpu) else { return nil }
            self.placement = placement
            _ = policy.decide(.ringBound)
        }

        mutating func follow(readBytes: Int) {
            placement.perform(policy.decide(.ringRequestCame(readBytes: readBytes)), &policy)
        }

        mutating func noteRead(tookNanoseconds: UInt64) {
            // Reads are timed while requests come one after the other.
            for _ in 0..<64 {
                _ = policy.decide(.companySeen(isShared: false, mayYield: false, yields: false))
            }
            let begun = policy.decide(.ringServiceBegins(hasMoved: false, yields: false))
            if begun == .readClock {
                _ = policy.decide(.clockRead(at: 1))
                _ = policy.decide(.ringAnswered(at: 1 + tookNanoseconds))
            }
            placement.perform(policy.decide(.ringRequestEnded), &policy)
        }
    }

    /// Runs `body` on its own thread, because it changes where the thread may run. `cpu`: a CPU
    /// that the thread may be bound to.
    private func onThread(_ body: @escaping @Sendable (_ cpu: UInt16) -> Void) throws {
        try SystemThread("placement") {
            let all = ward_cpu_count()
            guard let cpu = (0..<8192).first(where: { ward_run_on_cpu(UInt32($0)) == 0 }),
                ward_run_anywhere() == 0
            else {
                Issue.record("this thread may run on no CPU")
                return
            }
            #expect(all > 0 && ward_cpu_count() == all)
            body(UInt16(cpu))
        }.join()
    }

    @Test("large reads run anywhere, others on the queue's CPU again after some")
    func follows() throws {
        try onThread { cpu in
            let all = ward_cpu_count()
            guard var placement = Worker(cpu: cpu) else {
                Issue.record("no CPU \(cpu)")
                return
            }
            #expect(ward_cpu_count() == 1)
            placement.follow(readBytes: Request.largeBytes - 1)
            #expect(ward_cpu_count() == 1)
            for _ in 0..<3 {
                placement.follow(readBytes: Request.largeBytes)
                #expect(ward_cpu_count() == all)
                for _ in 1..<ServingLimits.requestsElsewhere { placement.follow(readBytes: 0) }
                #expect(ward_cpu_count() == all)
            }
            placement.follow(readBytes: 4096)
            #expect(ward_cpu_count() == 1)
        }
    }

    @Test("a worker that waited for a disk runs anywhere until some others have come")
    func waits() throws {
        try onThread { cpu in
            let all = ward_cpu_count()
            guard var placement = Worker(cpu: cpu) else {
                Issue.record("no CPU \(cpu)")
                return
            }
            placement.follow(readBytes: 4096)
            placement.noteRead(tookNanoseconds: ServingLimits.readWaitNanoseconds - 1)
            #expect(ward_cpu_count() == 1)
            for _ in 0..<3 * ServingLimits.requestsElsewhere {
                placement.follow(readBytes: 4096)
                placement.noteRead(tookNanoseconds: ServingLimits.readWaitNanoseconds)
                #expect(ward_cpu_count() == all)
            }
            for _ in 1..<ServingLimits.requestsElsewhere {
                placement.follow(readBytes: 4096)
                placement.noteRead(tookNanoseconds: 5000)
                #expect(ward_cpu_count() == all)
            }
            placement.follow(readBytes: 4096)
            #expect(ward_cpu_count() == 1)
        }
    }

    @Test("a CPU that can't be had binds to none")
    func noSuchCPU() throws {
        try onThread { _ in
            let all = ward_cpu_count()
            let isPlaced = RingPlacement(cpu: 8191) != nil
            #expect(!isPlaced)
            #expect(ward_cpu_count() == all)
        }
    }

    @Test("what a bound thread starts is not bound")
    func others() throws {
        try onThread { cpu in
            let all = ward_cpu_count()
            #expect(ward_run_on_cpu(UInt32(cpu)) == 0)
            #expect(ward_cpu_count() == 1)
            let other = try? SystemThread("other") {
                #expect(ward_cpu_count() == all)
                #expect(ward_is_bound() == 0)
            }
            #expect(other != nil)
            other?.join()
        }
    }
}
