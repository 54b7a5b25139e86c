import CWardLinux
import Testing

@testable import WardFUSE

@Suite("what is agreed with the kernel")
struct NegotiationTests {
    private func offer(minor: UInt32, _ features: UInt64) -> fuse_init_in {
        var offer = fuse_init_in()
        offer.major = 7
        offer.minor = minor
        offer.flags = UInt32(truncatingIfNeeded: features)
        offer.flags2 = UInt32(truncatingIfNeeded: features >> 32)
        return offer
    }

    @Test(
        "a kernel that offers everything does not get write-back, locks, splicing or asynchronous direct I/O"
    )
    func everything() throws {
        let agreed = try #require(
            Negotiation(answering: offer(minor: 45, ~0), sharedStorage: false))
        let refused =
            FUSE_WRITEBACK_CACHE | FUSE_POSIX_LOCKS | FUSE_FLOCK_LOCKS | FUSE_AUTO_INVAL_DATA
            | FUSE_SPLICE_READ | FUSE_SPLICE_WRITE | FUSE_SPLICE_MOVE | FUSE_EXPORT_SUPPORT
            | FUSE_SECURITY_CTX | FUSE_CREATE_SUPP_GROUP | FUSE_ALLOW_IDMAP | FUSE_PASSTHROUGH
            | FUSE_ASYNC_DIO
        #expect(agreed.features & refused == 0)
        #expect(agreed.features & FUSE_HANDLE_KILLPRIV_V2 != 0)
        #expect(agreed.reply.minor == 44)
        #expect(agreed.reply.request_timeout == 300)
        #expect(agreed.reply.max_write == 1 << 20 && agreed.reply.max_pages == 256)
    }

    @Test("nothing is asked for that is not offered; flags2 counts only with INIT_EXT")
    func modest() throws {
        let agreed = try #require(
            Negotiation(
                answering: offer(minor: 31, FUSE_ASYNC_READ | FUSE_REQUEST_TIMEOUT),
                sharedStorage: false))
        #expect(agreed.features == FUSE_ASYNC_READ)
        #expect(agreed.reply.request_timeout == 0)
        #expect(!agreed.hasExtendedSetxattr)
    }

    @Test("kernels before 5.4 are refused")
    func old() {
        #expect(Negotiation(answering: offer(minor: 30, ~0), sharedStorage: false) == nil)
    }

    @Test(
        "FUSE over io_uring only where it is wanted and offered, and then without a time limit for requests"
    )
    func ring() throws {
        func agreed(_ features: UInt64, usesRing: Bool) throws -> Negotiation {
            try #require(
                Negotiation(
                    answering: offer(minor: 45, features), sharedStorage: false,
                    usesRing: usesRing))
        }
        #expect(try !agreed(~0, usesRing: false).usesRing)
        #expect(try agreed(~0, usesRing: false).reply.request_timeout == 300)
        let over = try agreed(~0, usesRing: true)
        #expect(over.usesRing && over.reply.request_timeout == 0)
        #expect(over.reply.flags2 & UInt32(FUSE_OVER_IO_URING >> 32) != 0)
        let device = try agreed(~FUSE_OVER_IO_URING, usesRing: true)
        #expect(!device.usesRing && device.reply.request_timeout == 300)
    }

    @Test("shared storage lets the kernel look for changes")
    func shared() throws {
        let agreed = try #require(
            Negotiation(answering: offer(minor: 44, ~0), sharedStorage: true))
        #expect(agreed.features & FUSE_AUTO_INVAL_DATA != 0)
        #expect(agreed.features & FUSE_EXPLICIT_INVAL_DATA == 0)
    }
}
