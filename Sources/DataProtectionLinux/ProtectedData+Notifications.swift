extension ProtectedData {
    /// As `UIApplication.protectedDataWillBecomeUnavailableNotification`: the lock has come, files
    /// of class A and B can be opened until the grace period is over.
    public static let protectedDataWillBecomeUnavailableNotification = Notification.Name(
        rawValue: "UIApplicationProtectedDataWillBecomeUnavailable")

    /// As `UIApplication.protectedDataDidBecomeAvailableNotification`.
    public static let protectedDataDidBecomeAvailableNotification = Notification.Name(
        rawValue: "UIApplicationProtectedDataDidBecomeAvailable")

    /// Posts the two notifications, as UIKit does, until the value that is returned is cancelled or
    /// goes.
    ///
    /// They come on `queue`: `.main` is as UIKit has it, for a program whose main thread runs its
    /// queue. Without one they come from a background task; an observer that wants another queue
    /// names it (`addObserver(forName:object:queue:using:)`). The first comes with the first
    /// change, not with what holds now. Data that becomes unavailable without a grace period (a
    /// reboot, a daemon that dies) is announced when it is gone.
    public func postNotifications(
        to center: NotificationCenter = .default, on queue: DispatchQueue? = nil
    ) -> NotificationPosting {
        let events = events
        let box = UncheckedCenter(center: center)
        return NotificationPosting(
            task: Task {
                var announcer = Announcer()
                for await event in events {
                    guard let name = announcer.announce(event), !Task.isCancelled else { continue }
                    guard let queue else {
                        box.center.post(name: name, object: nil)
                        continue
                    }
                    await withCheckedContinuation { continuation in
                        queue.async {
                            box.center.post(name: name, object: nil)
                            continuation.resume()
                        }
                    }
                }
            })
    }

    /// Goes on until it is cancelled, or nobody holds it any more.
    public final class NotificationPosting: Sendable {
        private let task: Task<Void, Never>

        init(task: Task<Void, Never>) { self.task = task }

        public func cancel() { task.cancel() }

        deinit { task.cancel() }
    }

    /// Which notification an event is worth. Each is followed by the other.
    struct Announcer {
        private var isAvailable: Bool?

        mutating func announce(_ event: Event) -> Notification.Name? {
            let before = isAvailable
            // From the beginning of the grace period on it is announced to go.
            isAvailable = event.snapshot.map { $0.isAvailable && $0.state != .locking } ?? false
            guard let before, before != isAvailable else { return nil }
            return isAvailable == true
                ? ProtectedData.protectedDataDidBecomeAvailableNotification
                : ProtectedData.protectedDataWillBecomeUnavailableNotification
        }
    }
}

/// NotificationCenter is thread-safe by its documentation, and not marked so everywhere.
private struct UncheckedCenter: @unchecked Sendable {
    let center: NotificationCenter
}
