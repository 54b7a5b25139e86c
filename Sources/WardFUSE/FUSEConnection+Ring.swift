import CWardLinux
import Glibc
import WardSystem
import WardVolume

/// Serving by FUSE over io_uring.
extension FUSEConnection {
    /// What requests come by; until `serve` is called, what was agreed on.
    public var transport: FUSETransport { usesRing.load(ordering: .relaxed) ? .ioUring : .device }

    /// What the kernel answered that the protocol does not foresee, or why there is nobody to
    /// serve; the connection was aborted for it.
    public var servingError: Errno? {
        let result = strangeResult.load(ordering: .relaxed)
        return result == 0 ? nil : Errno(rawValue: 0 &- result)
    }

    /// Returns when the kernel has ended the connection, or it was cut off; false where the rings
    /// can't be had, at once: the kernel sends requests to the device then.
    func serveByRing(_ volume: Volume) -> Bool {
        let refusal: RingRefusal
        do throws(Errno) {
            refusal = try RingRefusal()
        } catch {
            cutOff(error)
            return true
        }
        guard let cpus = CPUs.read() else { return decline(refusal) }
        let syncs = SyncPool<RingChannel>(onTheSpot: volume)
        let ring = RingWorkers(device: share.device, queues: cpus.count) {
            [self] transport, willSync throws(Errno) in
            let context = try WorkerContext(allocatingFor: volume)
            transport.willRest = { context.scrub() }
            let server = RequestServer<RingChannel>(
                volume, context, policy, hasExtendedSetxattr: negotiation.hasExtendedSetxattr,
                syncs, counts)
            server.willSync = willSync
            return { [self] in
                while let (request, channel) = transport.nextRequest() {
                    server.serve(request, channel)
                }
                if transport.strangeResult != 0 {
                    strangeResult.store(transport.strangeResult, ordering: .relaxed)
                    abort()
                }
            }
        }
        self.ring.withLock { $0 = ring }
        defer { self.ring.withLock { $0 = nil } }
        guard ring.start(cpus) else { return decline(refusal) }
        serveAside(volume)
        ring.join()
        return true
    }

    /// Makes the kernel send requests to the device; as `serveByRing` where it doesn't.
    private func decline(_ refusal: RingRefusal) -> Bool {
        do throws(Errno) {
            try refusal.refuse(share.device)
            return false
        } catch {
            // The kernel has neither rings nor a refusal, and holds every request back.
            cutOff(error)
            return true
        }
    }

    /// So that nobody waits for ever, the connection ends.
    func cutOff(_ error: Errno) {
        strangeResult.store(0 &- error.rawValue, ordering: .relaxed)
        abort()
    }

    /// What still comes by the device: FORGET and INTERRUPT, and what was asked before the rings
    /// were there.
    private func serveAside(_ volume: Volume) {
        let syncs = SyncPool<DeviceChannel>(volume, workers: 1)
        let progress = WipeProgress()
        workers.withLock { $0 = [progress] }
        let body: @Sendable () -> Void = { [self] in
            work(volume, syncs, 0, progress, isAside: true)
        }
        if let thread = try? SystemThread("ward-fuse-aside", body) { thread.join() } else { body() }
        syncs.end()
        workers.withLock { $0 = [] }
    }
}
