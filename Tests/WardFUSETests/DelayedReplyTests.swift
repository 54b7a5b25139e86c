import CWardLinux
import Glibc
import Synchronization
import Testing
import WardSystem

@testable import WardFUSE
@testable import WardVolume

/// Errors that are sent some time after their request.
@Suite struct DelayedReplyTests {
    private final class Answers: Sendable {
        private let all = Mutex<[(unique: UInt64, thread: Int32)]>([])
        let word = FutexWord()

        func note(_ unique: UInt64) {
            all.withLock { $0.append((unique, ward_gettid())) }
            word.increment()
            word.wakeAll()
        }
        var uniques: [UInt64] { all.withLock { $0.map(\.unique).sorted() } }
        var threads: [Int32] { all.withLock { $0.map(\.thread) } }

        /// Waits up to ten seconds for `count` answers. Calls `again` until then: a first call may
        /// come before the worker waits.
        func come(_ count: Int, doing again: () -> Void = {}) -> Bool {
            let end = SystemClock.monotonic() + .seconds(10)
            while SystemClock.monotonic() < end {
                let now = word.value
                if uniques.count >= count { return true }
                again()
                word.wait(while: now, nanoseconds: 100_000_000)
            }
            return false
        }
    }

    private struct Channel: ReplyChannel {
        let answers: Answers

        func send(_ message: UnsafeRawBufferPointer) -> Bool {
            let header = message.loadUnaligned(as: fuse_out_header.self)
            #expect(header.error == -EPERM)
            answers.note(header.unique)
            return true
        }
        func send(_ head: UnsafeRawBufferPointer, _ payload: UnsafeRawBufferPointer) -> Bool {
            send(head)
        }
    }

    private struct BoundChannel: ReplyChannel {
        let answers: Answers
        let company: Atomic<Bool>.Box
        static var isForAnyThread: Bool { false }
        var hasCompany: Bool { company.value }

        func send(_ message: UnsafeRawBufferPointer) -> Bool {
            answers.note(message.loadUnaligned(as: fuse_out_header.self).unique)
            return true
        }
        func send(_ head: UnsafeRawBufferPointer, _ payload: UnsafeRawBufferPointer) -> Bool {
            send(head)
        }
    }

    @Test("From another thread: in their time, all at once when the gate changes, and at the end")
    func elsewhere() {
        let refusals = Refusals()
        let answers = Answers()
        let replies = DelayedReplies<Channel>(refusals)
        func complete(_ unique: UInt64, _ nanoseconds: UInt64) {
            replies.complete(
                unique, error: -EPERM, Channel(answers: answers), after: nanoseconds)
        }
        let long: UInt64 = 3_600_000_000_000
        complete(1, long)
        complete(2, 1_000_000)
        #expect(answers.come(1))
        #expect(answers.uniques == [2])
        complete(3, long)
        refusals.letGo()
        #expect(answers.come(3))
        #expect(answers.uniques == [1, 2, 3])
        complete(4, long)
        replies.end()
        #expect(answers.uniques == [1, 2, 3, 4])
        complete(5, long)
        #expect(answers.uniques == [1, 2, 3, 4, 5])
        #expect(answers.threads.dropLast().allSatisfy { $0 != ward_gettid() })
    }

    @Test("A worker whose replies are its own waits only while another one takes its requests")
    func ownThread() throws {
        let refusals = Refusals()
        let answers = Answers()
        let replies = DelayedReplies<BoundChannel>(refusals)
        let company = Atomic<Bool>.Box(false)
        let channel = BoundChannel(answers: answers, company: company)
        let long: UInt64 = 3_600_000_000_000
        replies.complete(1, error: -EPERM, channel, after: long)
        #expect(answers.uniques == [1])
        for (unique, end) in [
            (UInt64(2), { refusals.letGo() }), (3, { company.value = false }),
        ] {
            company.value = true
            let worker = try SystemThread("waits") {
                replies.complete(unique, error: -EPERM, channel, after: long)
            }
            #expect(answers.come(Int(unique), doing: end))
            worker.join()
        }
        replies.end()
    }
}

extension Atomic where Value == Bool {
    /// A Boolean that a test and its channels share.
    final class Box: Sendable {
        private let atomic: Atomic<Bool>
        init(_ value: Bool) { atomic = Atomic(value) }
        var value: Bool {
            get { atomic.load(ordering: .acquiring) }
            set { atomic.store(newValue, ordering: .releasing) }
        }
    }
}
