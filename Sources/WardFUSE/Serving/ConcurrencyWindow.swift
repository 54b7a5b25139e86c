/// Tells whether the requests of a queue come one after the other (decision 0068).
///
/// Requests of several programs at once should be spread over the CPUs: a worker yields only while
/// they come one after the other.
struct ConcurrencyWindow {
    private(set) var isSerial = false
    private var requests = 0
    private var shared = 0

    /// `isShared`: another request of the queue is being served.
    @inline(__always)
    mutating func note(isShared: Bool) {
        requests += 1
        if isShared { shared += 1 }
        let isFull =
            requests >= (isSerial ? ServingLimits.shortWindow : ServingLimits.longWindow)
        guard isFull || isSerial && shared >= ServingLimits.sharedRequests else { return }
        isSerial = shared < ServingLimits.sharedRequests
        requests = 0
        shared = 0
    }
}
