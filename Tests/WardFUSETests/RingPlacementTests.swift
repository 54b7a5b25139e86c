import CWardLinux
import Testing
import WardSystem

@testable import WardFUSE

/// Where the workers of FUSE over io_uring run (decision 0066).
@Suite struct RingPlacementTests {
    /// How many CPUs the calling thread may use.
    private static func count() -> Int {
        var cpus = ward_cpus()
        guard ward_cpus_of_thread(&cpus) == 0 else { return -1 }
        return withUnsafeBytes(of: &cpus) { bytes in
            bytes.reduce(0) { $0 + $1.nonzeroBitCount }
        }
    }

    /// Runs `body` on a thread of its own, as it changes where that one may run.
    private func onThread(_ body: @escaping @Sendable () -> Void) throws {
        try SystemThread("placement", body).join()
    }

    @Test("large reads run anywhere, others on the queue's CPU again after some")
    func follows() throws {
        try onThread {
            var everywhere = ward_cpus()
            #expect(ward_cpus_of_thread(&everywhere) == 0)
            let all = Self.count()
            guard let cpu = (0..<8192).first(where: { ward_run_on_cpu(UInt32($0)) == 0 }),
                var placement = RingPlacement(cpu: UInt16(cpu), everywhere: everywhere)
            else {
                Issue.record("this thread may run on no CPU")
                return
            }
            #expect(Self.count() == 1)
            placement.follow(readBytes: RingPlacement.largeBytes - 1)
            #expect(Self.count() == 1)
            for _ in 0..<3 {
                placement.follow(readBytes: RingPlacement.largeBytes)
                #expect(Self.count() == all)
                for _ in 1..<RingPlacement.patience { placement.follow(readBytes: 0) }
                #expect(Self.count() == all)
            }
            placement.follow(readBytes: 4096)
            #expect(Self.count() == 1)
        }
    }

    @Test("a CPU that can't be had binds to none")
    func noSuchCPU() throws {
        try onThread {
            var everywhere = ward_cpus()
            #expect(ward_cpus_of_thread(&everywhere) == 0)
            let all = Self.count()
            let isPlaced = RingPlacement(cpu: 8191, everywhere: everywhere) != nil
            #expect(!isPlaced)
            #expect(Self.count() == all)
        }
    }
}
