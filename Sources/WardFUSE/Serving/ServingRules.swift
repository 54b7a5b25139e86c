/// The rules by which workers serve, one switch each (`ServingPolicy`, decision 0084). All are on;
/// measurements turn some off.
public struct ServingRules: OptionSet, Sendable, Hashable {
    public let rawValue: UInt16

    public init(rawValue: UInt16) { self.rawValue = rawValue }

    /// One worker at the device serves alone while it keeps up (decision 0063). Off: all workers
    /// wait at the device.
    public static let serveAlone = ServingRules(rawValue: 1 << 0)
    /// A request of a slow machine is told from one that waited for a disk. Off: both count as
    /// slow.
    public static let countWaits = ServingRules(rawValue: 1 << 1)
    /// Two programs that ask in turns do not need a second worker. Off: their requests count as
    /// waiting.
    public static let takeTurns = ServingRules(rawValue: 1 << 2)
    /// A worker at the device polls for a moment before it sleeps.
    public static let poll = ServingRules(rawValue: 1 << 3)
    /// No worker polls where as many programs ask as there are CPUs.
    public static let leaveProcessors = ServingRules(rawValue: 1 << 4)
    /// The sole worker leaves a sync to another thread where other programs ask. Off: it syncs
    /// itself.
    public static let syncElsewhere = ServingRules(rawValue: 1 << 5)
    /// A worker yields the CPU to programs while requests come one after the other (decision 0068).
    public static let yield = ServingRules(rawValue: 1 << 6)
    /// A sole worker that yields runs on the CPU of the program that asks (decision 0071).
    public static let followProgram = ServingRules(rawValue: 1 << 7)
    /// A ring's worker leaves its CPU for large reads and after waits (decision 0066).
    public static let placeReads = ServingRules(rawValue: 1 << 8)
    /// A ring's worker stays awake for a moment after a program came from another CPU.
    public static let stayAwake = ServingRules(rawValue: 1 << 9)
    /// The thread beside the rings waits for more FORGETs after one.
    public static let gatherForgets = ServingRules(rawValue: 1 << 10)

    public static let all = ServingRules(Self.names.map(\.rule))

    /// Each rule with its word on the command line.
    public static let names: [(word: String, rule: ServingRules)] = [
        ("serve-alone", .serveAlone), ("count-waits", .countWaits), ("take-turns", .takeTurns),
        ("poll", .poll), ("leave-processors", .leaveProcessors),
        ("sync-elsewhere", .syncElsewhere), ("yield", .yield),
        ("follow-program", .followProgram), ("place-reads", .placeReads),
        ("stay-awake", .stayAwake), ("gather-forgets", .gatherForgets),
    ]

    /// The words of the rules in this set.
    public var words: [String] { Self.names.filter { contains($0.rule) }.map(\.word) }

    /// The rules of a list such as "yield,poll"; nil where a word names none.
    public init?(words: String) {
        self = []
        for word in words.split(separator: ",") {
            guard let name = Self.names.first(where: { $0.word == word }) else { return nil }
            insert(name.rule)
        }
    }
}

/// The constants of the rules. Times are nanoseconds unless the name says otherwise.
enum ServingLimits {
    // MARK: serveAlone

    /// A request that takes longer may have waited for a disk: other workers could have served
    /// meanwhile.
    static let quickNanoseconds: UInt64 = 60_000
    /// A worker does not poll after a request of this time.
    static let slowNanoseconds: UInt64 = 40_000
    /// A request of this time needs other workers, even if it waited for nothing.
    static let longNanoseconds: UInt64 = 500_000
    /// If more requests in a row waited when the one before was answered, one worker is too few.
    static let mostWaiting = 8
    /// A quick request adds one point. Any other takes away this.
    static let slowPoints = 16
    /// A sync takes away this. A program that alternates writes and syncs needs several workers. A
    /// sole worker would wait on the program's CPU, and the disk reports on another.
    static let syncPoints = 4
    /// A worker with so many points may serve alone, and does so until it has less than half.
    static let pointsToServeAlone = 64
    static let mostPoints = 128
    /// After so many requests the sole worker again interrupts the workers that still sleep at the
    /// device.
    static let requestsBetweenReminders: UInt32 = 256
    /// Looks of the watch without a request, after which the sole worker's turn ends.
    static let idleLooks = 16
    /// The same for looks during one request that no other request waits behind.
    static let patientLooks = 256
    /// The time from one look of the watch to the next.
    static let watchNanoseconds = 1_000_000

    // MARK: countWaits

    /// Waits are counted in so many requests after a slow one.
    static let countedRequests = 64
    /// After a slow request that did wait, so many slow ones start no count.
    static let uncountedSlowRequests = 16

    // MARK: poll

    /// The longest time of one poll.
    static let pollNanoseconds: UInt64 = 50_000
    /// A vain poll takes a credit away, a request in time brings one; at 0 the worker sleeps.
    static let mostPollCredit = 16

    // MARK: syncElsewhere

    /// If no other program asked for so long, there is one program.
    static let oneProgramNanoseconds: UInt64 = 10_000_000

    // MARK: yield

    /// The window, in requests, before a worker may yield: less than `sharedRequests` of them may
    /// have company.
    static let longWindow = 64
    /// The window while the worker yields: `sharedRequests` with company in it end that.
    static let shortWindow = 16
    static let sharedRequests = 4
    /// The shortest time between two looks for starvation.
    static let starvationNanoseconds: UInt64 = 5_000_000
    /// How long no worker yields after the first starvation, and at most. The pause doubles with
    /// each starvation that follows soon.
    static let firstPauseNanoseconds: UInt64 = 100_000_000
    static let longestPauseNanoseconds: UInt64 = 64_000_000_000
    /// A sole worker starves if it was freed within a request twice in this time.
    static let freedNanoseconds: UInt64 = 20_000_000
    /// A worker is kept from running if it got less than one part in so many of the time.
    static let keptFromRunningShare: UInt64 = 8

    // MARK: followProgram

    /// After so many vain looks in a row the program's CPU is looked up.
    static let vainLooks = 2
    /// The CPU is also looked up at the first request and after so many. A worker that is awake on
    /// another CPU finds every request, too.
    static let requestsBetweenLookUps: UInt32 = 256

    // MARK: placeReads

    /// A smaller read that took so long waited for a disk. With the content in memory it takes a
    /// tenth of that.
    static let readWaitNanoseconds: UInt64 = 40_000
    /// After so many other requests in a row the worker goes back to its CPU.
    static let requestsElsewhere = 4

    // MARK: stayAwake

    /// Longer than a request takes. The worker leaves the CPU to any thread that needs it
    /// meanwhile.
    static let awakeNanoseconds: UInt64 = 150_000
    /// A request that takes longer waited for a disk, and so will the next: no request comes
    /// meanwhile.
    static let longestServiceNanoseconds: UInt64 = 50_000

    // MARK: gatherForgets

    /// How long the thread waits after a FORGET for more of them. A FORGET after an unlink frees a
    /// node, and no program waits for that.
    static let gatheringMicroseconds: UInt32 = 2000
}
