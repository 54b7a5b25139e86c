extension ProtectedData {
    /// A change of what can be opened.
    public struct Event: Hashable, Sendable {
        public enum Kind: Hashable, Sendable {
            /// The first element of `events`: what holds. Again when a daemon serves the volume
            /// after `ended`.
            case began
            /// Files of the class in `protection` can't be opened in `remaining` from now on,
            /// unless an unlock comes first.
            case willBecomeUnavailable
            /// Files of the class in `protection` can't be opened any more.
            case didBecomeUnavailable
            /// Files of the class in `protection` can be opened (again), or go on to be: a lock was
            /// cancelled.
            case didBecomeAvailable
            /// The lock state is another one.
            case stateChanged
            /// A passcode was set, changed or removed.
            case passcodeChanged
            /// Nobody serves the volume any more: it was unmounted, or its daemon has died.
            case ended
        }

        public let kind: Kind
        /// Of an event that concerns one class.
        public let protection: FileProtectionType?
        /// Of `willBecomeUnavailable`: how long files can still be opened.
        public let remaining: Duration?
        /// What holds after it; nil while nobody serves the volume.
        public let snapshot: Snapshot?

        init(
            _ kind: Kind, _ snapshot: Snapshot?, protection: FileProtectionType? = nil,
            remaining: Duration? = nil
        ) {
            self.kind = kind
            self.protection = protection
            self.remaining = remaining
            self.snapshot = snapshot
        }
    }

    /// What happens from now on, beginning with what holds (`began`).
    ///
    /// Whoever takes this first and looks at a file or `isAvailable` afterwards misses nothing: it
    /// is registered when the property is read, not when the loop begins. What the beginning shows
    /// may be told again; after the last event its snapshot holds. When the daemon goes there is
    /// `ended`, when one is back, `began`. The sequence ends with the task that reads it. Of a
    /// reader that does not keep up the oldest events are dropped.
    ///
    /// All sequences of one `url` share one thread and one connection, which end with the last of
    /// them.
    public var events: AsyncStream<Event> {
        AsyncStream(bufferingPolicy: .bufferingNewest(1024)) { continuation in
            let subscription = VolumeWatch.subscribe(url.path) { continuation.yield($0) }
            continuation.onTermination = { _ in subscription.cancel() }
        }
    }

    /// Runs `body` as soon as files of a class can be opened: at once where they can be now.
    ///
    /// Throws `CancellationError` where the task is cancelled before that, and what `body` throws;
    /// that may be `locked` where a lock came in between. Waits also for a volume that is not
    /// mounted yet.
    public func performWhenAvailable<Value>(
        for protection: FileProtectionType = .complete,
        isolation: isolated (any Actor)? = #isolation, _ body: () async throws -> Value
    ) async throws -> Value {
        if isAvailable(for: protection) { return try await body() }
        for await event in events
        where event.snapshot?.isAvailable(for: protection) == true {
            return try await body()
        }
        throw CancellationError()
    }
}
