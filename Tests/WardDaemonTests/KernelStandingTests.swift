import Testing
import WardControl
import WardSystem

@testable import WardDaemon

@Suite("what the check of the kernel decides")
struct KernelStandingTests {
    private static let content = PageSight(mapped: .content, read: .content)
    private static let refused = PageSight(
        mapped: .refused(.badAddress), read: .refused(.notPermitted))

    private func decide(_ before: PageSight?, _ after: PageSight?) -> KernelStanding {
        KernelStanding(before: before, after: after, kernel: "Linux 6.18")
    }

    @Test("content before and refusals after: the kernel drops pages, and classes open")
    func checked() {
        let standing = decide(Self.content, Self.refused)
        #expect(standing == .checked)
        #expect(standing.refusal == nil)
    }

    @Test("a page that still comes has been kept: nothing opens")
    func failed() {
        let kept: [(PageSight, String)] = [
            (Self.content, "mapped pages and pages of open files"),
            (PageSight(mapped: .content, read: .refused(.notPermitted)), "mapped pages"),
            (PageSight(mapped: .refused(.badAddress), read: .content), "pages of open files"),
            (PageSight(mapped: .otherBytes, read: .refused(.notPermitted)), "mapped pages"),
        ]
        for (after, what) in kept {
            let why = "the kernel (Linux 6.18) keeps \(what) that a lock must drop"
            #expect(decide(Self.content, after) == .failed(why))
            #expect(decide(Self.content, after).refusal == .kernelKeepsPages(reason: why))
        }
    }

    @Test("without the content before, or without an end, nothing is known: nothing opens yet")
    func notChecked() {
        let sights: [(PageSight?, PageSight?)] = [
            (nil, nil), (nil, Self.refused), (Self.content, nil), (Self.refused, Self.refused),
            (PageSight(mapped: .content, read: .refused(.ioError)), Self.refused),
            (PageSight(mapped: .otherBytes, read: .content), Self.refused),
        ]
        for (before, after) in sights {
            let standing = decide(before, after)
            guard case .notChecked = standing else {
                Issue.record(
                    "\(String(describing: before)), \(String(describing: after)): \(standing)")
                continue
            }
            guard case .busy = standing.refusal else {
                Issue.record("\(standing) is not refused as busy")
                continue
            }
        }
        guard case .busy = KernelStanding.checking.refusal else {
            Issue.record("a check under way does not refuse")
            return
        }
    }

    @Test("a sight comes through the socket as it was")
    func bytes() {
        for outcome in [
            PageSight.Outcome.content, .otherBytes, .refused(.badAddress), .refused(.ioError),
        ] {
            let sight = PageSight(mapped: outcome, read: .content)
            #expect(PageSight(bytes: sight.bytes) == sight)
        }
        #expect(PageSight(bytes: [0]) == nil)
        #expect(PageSight(bytes: [0, 0, 0]) == nil)
    }
}
