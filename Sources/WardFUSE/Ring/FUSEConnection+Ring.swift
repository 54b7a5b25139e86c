import CWardLinux
import Glibc
import WardSystem
import WardVolume

/// Serving by FUSE over io_uring.
extension FUSEConnection {
    /// How requests come; before `serve`, how kernel and daemon agreed that they come.
    public var transport: FUSETransport { usesRing.load(ordering: .relaxed) ? .ioUring : .device }

    /// The kernel's answer that the protocol does not foresee, or why no worker could serve. The
    /// connection was aborted for it.
    public var servingError: Errno? {
        let result = strangeResult.load(ordering: .relaxed)
        return result == 0 ? nil : Errno(rawValue: 0 &- result)
    }

    /// Returns when the kernel has ended the connection, or it was cut off. Returns false at once
    /// where there are no rings: the kernel then sends requests to the device.
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
        let ring = RingWorkers(
            device: share.device, queues: cpus.count, rules: share.rules
        ) { [self] transport, willSync throws(Errno) in
            let context = try WorkerContext(allocatingFor: volume)
            transport.willRest = { context.scrub() }
            let server = RequestServer<RingChannel>(
                volume, context, policy, hasExtendedSetxattr: negotiation.hasExtendedSetxattr,
                syncs, counts, probe)
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

    /// Makes the kernel send requests to the device, and returns false. Where the kernel does not,
    /// cuts the connection off and returns true.
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

    /// Ends the connection, so that no program waits for ever.
    func cutOff(_ error: Errno) {
        strangeResult.store(0 &- error.rawValue, ordering: .relaxed)
        abort()
    }

    /// Serves the requests that still come by the device: FORGET and INTERRUPT, and requests from
    /// before the rings.
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
