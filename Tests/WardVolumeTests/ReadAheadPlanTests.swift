import Testing

@testable import WardVolume

/// The files of a directory that are fetched before a program asks for them (decision 0070).
@Suite struct ReadAheadPlanTests {
    private static let limits = ReadAheadPlan.Limits(first: 4, most: 8, least: 2)

    /// The listing of a backing store, in no order.
    private func listing(_ count: Int) -> [UInt64] {
        (0..<count).map { UInt64(100 + ($0 * 7) % count) }
    }

    private func plan(
        _ count: Int, _ limits: ReadAheadPlan.Limits = limits,
        _ order: ReadAheadPlan.Order = .inodes
    ) -> ReadAheadPlan {
        ReadAheadPlan(
            listing(count).map {
                ReadAheadPlan.Entry(inode: $0, name: [CChar(truncatingIfNeeded: $0), 0])
            },
            limits, order)
    }

    @Test("from the one that was used on, in the order of inodes, and from the beginning again")
    func order() {
        var plan = plan(11)
        #expect(plan.use(108).map(\.inode) == [109, 110, 100, 101, 102, 103])
        #expect(plan.outstanding == 6)
    }

    @Test("who follows the listing has what comes next there, and who leaves it again, by inodes")
    func listing() {
        let inodes = listing(101)
        var plan = plan(101)
        plan.note(inodes[50])
        #expect(plan.order == .inodes)
        #expect(plan.use(inodes[51]).map(\.inode) == Array(inodes[52..<60]))
        #expect(plan.order == .listing)
        #expect(plan.use(inodes[52]).isEmpty && plan.use(inodes[53]).count == 2)
        // Another place, but the same order.
        #expect(plan.use(inodes[90]).isEmpty && plan.order == .listing)
        #expect(plan.outstanding == 8)
        for inode in inodes[54..<62] { _ = plan.use(inode) }
        #expect(plan.outstanding == 8 && plan.use(inodes[20]).isEmpty)
        #expect(plan.use(inodes[20] + 1).isEmpty && plan.order == .inodes)
    }

    @Test("the order that was found beside it holds from the first entry on")
    func expectedOrder() {
        var plan = plan(101, Self.limits, .listing)
        #expect(plan.take().map(\.inode) == Array(listing(101)[..<4]))
    }

    @Test("of a file with several names the first that is listed counts")
    func links() {
        let entries = [(7, 1), (3, 2), (7, 3), (5, 4)].map {
            ReadAheadPlan.Entry(inode: $0.0, name: [CChar($0.1), 0])
        }
        var plan = ReadAheadPlan(entries, Self.limits, .listing)
        #expect(plan.take() == [entries[0], entries[1], entries[3]])
    }

    @Test("more with each use, up to a limit, and not one at a time")
    func growth() {
        var plan = plan(101)
        #expect(plan.take().count == 4)
        #expect(plan.use(100).map(\.inode) == [104, 105, 106], "six at most, less those left")
        #expect(plan.use(101).count == 3)
        #expect(plan.outstanding == 8)
        #expect(plan.use(102).isEmpty, "one alone is not worth the call")
        #expect(plan.use(103).count == 2)
        #expect(plan.outstanding == 8)
    }

    @Test("who jumps is followed")
    func jumps() {
        var plan = plan(101)
        _ = plan.use(100)
        #expect(plan.use(150).first?.inode == 151)
    }

    @Test("what the directory got later, what is used again, and the last ones")
    func edges() {
        var plan = plan(3)
        #expect(plan.use(99).isEmpty && plan.use(103).isEmpty)
        #expect(plan.use(101).map(\.inode) == [102, 100], "all that is left")
        #expect(plan.use(101).isEmpty && plan.outstanding == 2)
        #expect(plan.use(100).isEmpty && plan.outstanding == 1)
        #expect(plan.use(100).isEmpty && plan.outstanding == 1, "once")
        var single = self.plan(1)
        #expect(single.use(100).isEmpty)
        var empty = self.plan(0)
        #expect(empty.use(100).isEmpty && empty.take().isEmpty)
    }

    @Test("a plan that was stopped fetches nothing")
    func stopped() {
        var plan = plan(50)
        plan.stop()
        #expect(plan.use(100).isEmpty && plan.take().isEmpty)
    }

    @Test(
        "any order of uses: each is fetched once, none that was used",
        arguments: 1...20)
    func anyOrder(seed: UInt64) {
        var random = seed &* 0x9E37_79B9_7F4A_7C15
        func next(_ bound: Int) -> Int {
            random = random &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            return Int((random >> 33) % UInt64(bound))
        }
        var plan = plan(1 + next(300), .files)
        var fetched: Set<UInt64> = []
        var used: Set<UInt64> = []
        var left = (0..<300).map { UInt64(100 + $0) }
        while !left.isEmpty {
            let inode = left.remove(at: next(left.count))
            used.insert(inode)
            for entry in plan.use(inode) {
                #expect(fetched.insert(entry.inode).inserted && !used.contains(entry.inode))
            }
            #expect(plan.outstanding == fetched.subtracting(used).count)
            #expect(plan.outstanding <= ReadAheadPlan.Limits.files.most)
        }
        #expect(plan.outstanding == 0 && plan.take().isEmpty, "all was used")
    }
}
