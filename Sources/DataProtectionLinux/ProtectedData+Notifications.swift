extension ProtectedData {
    /// Posted when a lock begins: files of classes A and B can be opened until the grace period is
    /// over. UIKit's `UIApplication.protectedDataWillBecomeUnavailableNotification`.
    public static let protectedDataWillBecomeUnavailableNotification = Notification.Name(
        rawValue: "UIApplicationProtectedDataWillBecomeUnavailable")

    /// Posted when files of classes A and B can be opened again. UIKit's
    /// `UIApplication.protectedDataDidBecomeAvailableNotification`.
    public static let protectedDataDidBecomeAvailableNotification = Notification.Name(
        rawValue: "UIApplicationProtectedDataDidBecomeAvailable")

    /// Posts the two notifications, as UIKit does, until the returned value is cancelled or
    /// released.
    ///
    /// They are posted on `queue`. Use `.main` for UIKit's behaviour, in a program whose main
    /// thread runs its queue. Without a queue a background task posts them, and an observer can
    /// name its own queue (`addObserver(forName:object:queue:using:)`).
    ///
    /// The first notification comes with the first change; the present state is not posted. If data
    /// becomes unavailable without a grace period (a reboot, a dead daemon), the notification comes
    /// afterwards.
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

    /// The posting of notifications. It ends when `cancel` is called or the value is released.
    public final class NotificationPosting: Sendable {
        private let task: Task<Void, Never>

        init(task: Task<Void, Never>) { self.task = task }

        /// Stops posting.
        public func cancel() { task.cancel() }

        deinit { task.cancel() }
    }

    /// Chooses the notification for an event. The two notifications alternate.
    struct Announcer {
        private var isAvailable: Bool?

        mutating func announce(_ event: Event) -> Notification.Name? {
            let before = isAvailable
            // Data counts as unavailable from the beginning of the grace period.
            isAvailable = event.snapshot.map { $0.isAvailable && $0.state != .locking } ?? false
            guard let before, before != isAvailable else { return nil }
            return isAvailable == true
                ? ProtectedData.protectedDataDidBecomeAvailableNotification
                : ProtectedData.protectedDataWillBecomeUnavailableNotification
        }
    }
}

/// NotificationCenter is documented as thread-safe, but not everywhere marked `Sendable`.
private struct UncheckedCenter: @unchecked Sendable {
    let center: NotificationCenter
}
