import CWardLinux
import Glibc
import WardSystem

/// The first words with the kernel on a new mount: what both sides can do.
struct Handshake {
    private let device: Int32
    private let options: FUSEMountOptions

    /// `device`: the descriptor of `/dev/fuse` that was mounted.
    init(_ device: Int32, _ options: FUSEMountOptions) {
        self.device = device
        self.options = options
    }

    /// Answers INIT, which the kernel sends by itself after the mount.
    func negotiate() throws(FUSEError) -> Negotiation {
        let buffer = UnsafeMutableRawBufferPointer.allocate(
            byteCount: DeviceTransport.bufferBytes, alignment: 4096)
        defer { buffer.deallocate() }
        while true {
            let request = try readInit(buffer)
            // Older kernels send a shorter structure.
            var offer = fuse_init_in()
            withUnsafeMutableBytes(of: &offer) { offer in
                offer.copyMemory(
                    from: UnsafeRawBufferPointer(rebasing: request.body.rest.prefix(offer.count)))
            }
            let channel = DeviceChannel(descriptor: device)
            if offer.major > UInt32(FUSE_KERNEL_VERSION) {
                // Tells the kernel to ask again in the version that ward speaks.
                var reply = fuse_init_out()
                reply.major = UInt32(FUSE_KERNEL_VERSION)
                reply.minor = UInt32(FUSE_KERNEL_MINOR_VERSION)
                send(reply, request.header.unique, channel)
                continue
            }
            let offersRing = Negotiation.offersRing(offer)
            if options.transport == .ioUring, !offersRing {
                channel.complete(request.header.unique, error: -EPROTO)
                throw refused(
                    "the kernel does not offer FUSE over io_uring",
                    hint:
                        "on Linux 6.14 or later: echo Y | sudo tee /sys/module/fuse/parameters/enable_uring"
                )
            }
            guard
                let agreed = Negotiation(
                    answering: offer, sharedStorage: options.sharedStorage,
                    usesRing: usesRing)
            else {
                channel.complete(request.header.unique, error: -EPROTO)
                throw FUSEError(
                    .kernelTooOld, "mount on", options.mountPoint,
                    "the kernel speaks FUSE \(offer.major).\(offer.minor), ward needs 7.31 (Linux 5.4)"
                )
            }
            send(agreed.reply, request.header.unique, channel)
            return agreed
        }
    }

    /// Reads INIT into `buffer`, and waits ten seconds for it.
    private func readInit(_ buffer: UnsafeMutableRawBufferPointer) throws(FUSEError) -> Request {
        let count: Int
        do throws(Errno) {
            var entry = pollfd(fd: device, events: Int16(POLLIN), revents: 0)
            let ready = try withUnsafeMutablePointer(to: &entry) { entry throws(Errno) in
                try Syscall.poll(
                    UnsafeMutableBufferPointer(start: entry, count: 1),
                    timeoutMilliseconds: 10_000)
            }
            guard ready > 0 else { throw Errno(rawValue: ETIMEDOUT) }
            count = try Syscall.read(device, buffer.baseAddress!, buffer.count)
        } catch {
            throw refused("the kernel does not begin the FUSE protocol: \(error)")
        }
        guard let request = Request(UnsafeRawBufferPointer(rebasing: buffer.prefix(count))),
            fuse_opcode(rawValue: request.header.opcode) == FUSE_INIT
        else { throw refused("the kernel does not begin the FUSE protocol with INIT") }
        return request
    }

    private func refused(_ reason: String, hint: String? = nil) -> FUSEError {
        FUSEError(.refused, "mount on", options.mountPoint, reason, hint: hint)
    }

    /// Whether to use the rings where the kernel offers them.
    ///
    /// If the options leave the choice, this is false where the process can't have rings. The
    /// kernel would hold back all requests until there are some. If they demand io_uring,
    /// `Mounting.check` has looked before.
    private var usesRing: Bool {
        guard options.transport == nil else { return options.transport == .ioUring }
        return (try? RingTransport.check()) != nil && CPUs.read() != nil
    }

    private func send(_ reply: fuse_init_out, _ unique: UInt64, _ channel: DeviceChannel) {
        var message = (
            fuse_out_header(
                len: UInt32(MemoryLayout<(fuse_out_header, fuse_init_out)>.size), error: 0,
                unique: unique), reply
        )
        _ = withUnsafeBytes(of: &message) { channel.send($0) }
    }

    /// Raises the mount's read-ahead, for root. The kernel uses the smaller of INIT's value and its
    /// own 128 KiB; sysfs raises the second.
    static func raiseReadAhead(of minor: UInt32) {
        guard
            let file = try? OwnedDescriptor(
                opening: "/sys/class/bdi/0:\(minor)/read_ahead_kb", O_WRONLY)
        else { return }
        let text = Array("\(Negotiation.maximumTransferBytes / 1024)".utf8)
        text.withUnsafeBytes { try? Syscall.writeAll(file.rawValue, $0.baseAddress!, $0.count) }
    }
}
