/// Judges from the requests of one worker whether it could be the sole worker (decision 0063).
struct SoleWorkerScore {
    private let quickNanoseconds: UInt64
    private let countsWaits: Bool
    private var points = 0
    /// When the current request came; 0: there is none.
    private var servingSince: UInt64 = 0
    private var isSync = false
    private var isLarge = false
    private var waitingInARow = 0
    /// The next requests in which waits are counted.
    private var toCount = 0
    /// The next slow requests that start no count.
    private var toLeave = 0
    /// The thread's waits when the current request came; -1: not counted.
    private var waitsBefore = -1
    /// The time of the last request.
    private var took: UInt64 = 0
    /// The last request may have waited for a disk.
    private(set) var wasSlow = false

    init(quickNanoseconds: UInt64 = ServingLimits.quickNanoseconds, countsWaits: Bool = true) {
        self.quickNanoseconds = quickNanoseconds
        self.countsWaits = countsWaits
    }

    @inline(__always)
    var isServing: Bool { servingSince > 0 }

    @inline(__always)
    var sufficesAlone: Bool { points >= ServingLimits.pointsToServeAlone }

    /// A sole worker should end its turn.
    @inline(__always)
    var needsOthers: Bool { points < ServingLimits.pointsToServeAlone / 2 }

    /// `begin` needs the number of the thread's waits.
    @inline(__always)
    var needsWaits: Bool { toCount > 0 }

    /// Notes that a request came at `now`.
    ///
    /// `hadWaited`: the request was queued before the worker looked. The time of a sync (`isSync`)
    /// says nothing about other requests. Other workers could do a part of a large request
    /// (`isLarge`). `waits`: how often the thread has waited so far, if `needsWaits`.
    @inline(__always)
    mutating func begin(
        _ now: UInt64, hadWaited: Bool, isSync: Bool, isLarge: Bool, waits: Int
    ) {
        servingSince = now
        self.isSync = isSync
        self.isLarge = isLarge
        waitingInARow = hadWaited ? waitingInARow &+ 1 : 0
        waitsBefore = -1
        if toCount > 0 {
            toCount &-= 1
            waitsBefore = waits
        }
    }

    /// Notes that the request was answered. True: `noteWaits` must follow.
    @inline(__always)
    mutating func end(_ now: UInt64) -> Bool {
        took = now &- servingSince
        servingSince = 0
        wasSlow = took >= ServingLimits.slowNanoseconds
        if wasSlow, countsWaits, !isSync, !isLarge, took < ServingLimits.longNanoseconds {
            if waitsBefore >= 0 { return true }
            if toLeave > 0 { toLeave &-= 1 } else { toCount = ServingLimits.countedRequests }
        }
        score(isQuick: took < quickNanoseconds)
        return false
    }

    /// Notes the thread's waits at the end of a slow request. If it did not wait, the machine is
    /// slow.
    mutating func noteWaits(_ waits: Int) {
        let hasWaited = waits != waitsBefore
        toCount = hasWaited ? 0 : ServingLimits.countedRequests
        if hasWaited { toLeave = ServingLimits.uncountedSlowRequests } else { wasSlow = false }
        score(isQuick: !hasWaited || took < quickNanoseconds)
    }

    @inline(__always)
    private mutating func score(isQuick: Bool) {
        if isQuick, !isSync, waitingInARow <= ServingLimits.mostWaiting {
            points = min(points &+ 1, ServingLimits.mostPoints)
        } else {
            let lost = isSync ? ServingLimits.syncPoints : ServingLimits.slowPoints
            points = max(points &- lost, 0)
        }
    }
}
