extension ProtectedData {
    /// A change of the classes that can be opened, or of the volume's state.
    public struct Event: Hashable, Sendable {
        /// The kind of an event.
        public enum Kind: Hashable, Sendable {
            /// The first event, with the present state. It comes again when a daemon serves the
            /// volume after `ended`.
            case began
            /// Files of the class `protection` can't be opened after `remaining`, unless an unlock
            /// comes first.
            case willBecomeUnavailable
            /// Files of the class `protection` can't be opened any more.
            case didBecomeUnavailable
            /// Files of the class `protection` can be opened again, or stay available because a
            /// lock was cancelled.
            case didBecomeAvailable
            /// The lock state has changed.
            case stateChanged
            /// A passcode was set, changed or removed.
            case passcodeChanged
            /// No daemon serves the volume any more: it was unmounted, or its daemon died.
            case ended
        }

        /// The kind of this event.
        public let kind: Kind
        /// The class of an event that concerns one class; else nil.
        public let protection: FileProtectionType?
        /// How long files of the class can still be opened; only for `willBecomeUnavailable`.
        public let remaining: Duration?
        /// The volume's state after the event; nil while no daemon serves the volume.
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

    /// The events from now on, beginning with the present state (`began`).
    ///
    /// The sequence registers when the property is read, not when the loop begins. A program that
    /// first reads `events` and then looks at a file or at `isAvailable` misses no change. A change
    /// that `began` already shows may also come as an event. The snapshot of the latest event
    /// holds.
    ///
    /// When the daemon goes, `ended` comes; when a daemon is back, `began` comes. The sequence ends
    /// with the task that reads it. A slow reader loses the oldest events beyond 1,024.
    ///
    /// All sequences of one `url` share one thread and one connection, which end with the last
    /// sequence.
    public var events: AsyncStream<Event> {
        AsyncStream(bufferingPolicy: .bufferingNewest(1024)) { continuation in
            let subscription = VolumeWatch.subscribe(url.path) { continuation.yield($0) }
            continuation.onTermination = { _ in subscription.cancel() }
        }
    }

    /// Runs `body` as soon as files of a class can be opened, at once if they can be opened now. It
    /// also waits for a volume that is not mounted yet.
    ///
    /// - Throws: `CancellationError` if the task is cancelled before, and the errors of `body`.
    ///   Among these is `locked` if a lock comes in between.
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
