import Synchronization
import WardControl
import WardSystem
import WardVolume

/// Remembers the last events, streams them to `Monitor` clients and logs them.
///
/// Concurrency: any thread; never waits for a client or the disk. `state` is guarded by its mutex.
final class EventHub: VolumeObserver {
    /// Events remembered.
    static let capacity = 1000
    /// The same denial within this time counts as one event.
    static let mergeInterval = Duration.seconds(10)
    /// Answers that a client has not read yet may not come to more than 256 KiB, or it is dropped; half of that is left
    /// for what happens meanwhile.
    static let maximumReplayBytes = 128 << 10
    /// `{"parameters":…,"continues":true}` and the zero byte.
    static let answerOverheadBytes = 36
    /// How many of the last events are looked at for the same denial.
    static let mergeDepth = 32

    private struct Entry {
        var event: ControlEvent
        /// Monotonic.
        var at: Duration
        var repetitions = 0
    }

    private struct State {
        var ring: [Entry] = []
        /// Index of the oldest once the ring is full.
        var oldest = 0
        var subscribers: [ControlCall] = []
    }

    private let state = Mutex(State())
    private let log: LogWriter

    init(log: LogWriter) { self.log = log }

    func emit(_ event: ControlEvent) {
        let isNew = state.withLock { state in
            if event.kind == ControlEvent.Kind.denied.rawValue, merge(event, &state) {
                return false
            }
            let entry = Entry(event: event, at: SystemClock.monotonic())
            if state.ring.count < EventHub.capacity {
                state.ring.append(entry)
            } else {
                state.ring[state.oldest] = entry
                state.oldest = (state.oldest + 1) % EventHub.capacity
            }
            let answer = JSONValue.object([("event", event.json)])
            state.subscribers.removeAll { !$0.reply(answer, continues: true) }
            return true
        }
        if isNew { log.write(EventHub.level(of: event), EventHub.line(for: event)) }
    }

    /// Counts a denial that is remembered already; a program in a loop must not push everything else out.
    private func merge(_ event: ControlEvent, _ state: inout State) -> Bool {
        let now = SystemClock.monotonic()
        let count = state.ring.count
        for back in 0..<min(EventHub.mergeDepth, count) {
            let index = (state.oldest + count - 1 - back) % count
            let entry = state.ring[index]
            guard now - entry.at < EventHub.mergeInterval else { return false }
            guard entry.event.kind == event.kind, entry.event.path == event.path,
                entry.event.operation == event.operation, entry.event.pid == event.pid,
                entry.event.state == event.state
            else { continue }
            state.ring[index].repetitions += 1
            state.ring[index].event.detail = "\(entry.repetitions + 2) times"
            return true
        }
        return false
    }

    /// Answers `Monitor`: the last `last` events, or the latest of them that fit, then each as it happens.
    func subscribe(_ call: ControlCall, last: Int) {
        state.withLock { state in
            state.subscribers.removeAll { !$0.isAlive }
            let count = state.ring.count
            var replay: [JSONValue] = []
            var bytes = 0
            for back in 0..<min(max(last, 0), count) {
                let entry = state.ring[(state.oldest + count - 1 - back) % count]
                let answer = JSONValue.object([("event", entry.event.json)])
                bytes += answer.bytes.count + EventHub.answerOverheadBytes
                if bytes > EventHub.maximumReplayBytes { break }
                replay.append(answer)
            }
            for answer in replay.reversed() {
                guard call.reply(answer, continues: true) else { return }
            }
            state.subscribers.append(call)
        }
    }

    // MARK: What the volume reports

    func volume(_ volume: Volume, reports event: VolumeEvent) {
        switch event {
        case .denied(let path, let protectionClass, let operation, let caller):
            emit(
                ControlEvent(
                    kind: .denied, path: path, protectionClass: protectionClass.letter,
                    operation: operation, pid: Int(caller.pid), uid: Int(caller.uid)))
        case .integrityFailure(let path, let reason):
            emit(ControlEvent(kind: .integrityFailure, path: path, detail: reason))
        case .healed(let path, let finding):
            emit(ControlEvent(kind: .healed, path: path, detail: finding))
        case .lost(let path, let reason):
            emit(ControlEvent(kind: .lost, path: path, detail: reason))
        case .foreignFile(let backingPath):
            emit(
                ControlEvent(
                    kind: .foreignFile, path: backingPath, detail: "not part of the volume, ignored"
                ))
        case .note(let text): emit(ControlEvent(kind: .note, detail: text))
        }
    }

    // MARK: Log lines

    private static func level(of event: ControlEvent) -> LogWriter.Level {
        switch ControlEvent.Kind(rawValue: event.kind) {
        case .integrityFailure, .lost: .error
        case .healed, .foreignFile: .warning
        case .denied: .info
        default: .notice
        }
    }

    private static func line(for event: ControlEvent) -> String {
        var words = [event.kind]
        if let operation = event.operation { words.append(operation) }
        if let path = event.path { words.append(path) }
        if let letter = event.protectionClass { words.append("class \(letter)") }
        if let pid = event.pid { words.append("pid \(pid)") }
        if let uid = event.uid { words.append("uid \(uid)") }
        if let state = event.state { words.append("state \(state)") }
        if let seconds = event.secondsLeft { words.append("in \(seconds) s") }
        let head = words.joined(separator: " ")
        return event.detail.map { head + ": " + $0 } ?? head
    }
}
