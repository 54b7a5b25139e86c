import Synchronization
import WardControl
import WardFormat
import WardSystem
import WardVolume

/// Keeps the last events, streams them to `Monitor` clients and logs them.
///
/// Concurrency: any thread; never waits for a client or the disk. A mutex guards `state`.
final class EventHub: VolumeObserver {
    /// A client with more than 256 KiB of unread answers is dropped; half of that is left for later
    /// events.
    static let maximumReplayBytes = 128 << 10
    /// The rest of an answer: `{"parameters":…,"continues":true}` and the zero byte.
    static let answerOverheadBytes = 36

    /// The wishes of a `Monitor` client.
    struct Request {
        var last = 0
        var follow = true
        var signals = false
        /// The letter of the class.
        var protectionClass: String?
        var wantsStatus = false
        /// The lock state alone, for a program in a sandbox.
        var isNarrowed = false
    }

    private struct Subscriber {
        var call: ControlCall
        var request: Request

        /// Whether the client asked for this event.
        func wants(_ event: ControlEvent, isSignal: Bool) -> Bool {
            if isSignal, !request.signals { return false }
            // The expiry of CX is an event of the volume, too: skip it for a client that gets the
            // signal.
            if !isSignal, request.signals,
                event.kind == ControlEvent.Kind.didBecomeUnavailable.rawValue
            {
                return false
            }
            guard let wanted = request.protectionClass else { return true }
            if event.protectionClass == wanted { return true }
            switch ControlEvent.Kind(rawValue: event.kind) {
            case .firstUnlock, .reboot, .unmounting: return true
            default: return false
            }
        }
    }

    private struct State {
        var journal = EventJournal()
        var signals = ClassSignals()
        /// The lock state that denials are reported with.
        var lockState: String?
        var subscribers: [Subscriber] = []

        mutating func tell(_ event: ControlEvent, isSignal: Bool = false) {
            let whole = EventHub.answer(event)
            let narrowed =
                subscribers.contains { $0.request.isNarrowed }
                ? event.narrowed.map(EventHub.answer) : nil
            subscribers.removeAll { subscriber in
                guard subscriber.wants(event, isSignal: isSignal),
                    let answer = subscriber.request.isNarrowed ? narrowed : whole
                else { return false }
                return !subscriber.call.reply(answer, continues: true)
            }
        }
    }

    private let state = Mutex(State())
    private let log: LogWriter?
    private let programs = ProgramNames()

    /// Without a log, events are only kept and streamed.
    init(log: LogWriter?) { self.log = log }

    func emit(_ event: ControlEvent) {
        let now = SystemClock.monotonic()
        let new = state.withLock { state -> ControlEvent? in
            switch state.journal.record(event, now: now) {
            case .new(let event):
                state.tell(event)
                return event
            case .again(let event):
                state.tell(event)
                return nil
            case .counted: return nil
            }
        }
        if let new { log?.write(EventHub.level(of: new), EventHub.line(for: new)) }
    }

    /// Sets the state that later denials are reported with.
    func enter(_ lockState: String) { state.withLock { $0.lockState = lockState } }

    /// Tells the followers of each class about changes of it.
    func signal(
        available: ProtectionClassSet, closing: ProtectionClassSet, secondsLeft: Double?,
        state name: String
    ) {
        state.withLock { state in
            let signals = state.signals.update(
                available: available, closing: closing, secondsLeft: secondsLeft, state: name)
            for signal in signals { state.tell(signal, isSignal: true) }
        }
    }

    /// The number of events of each kind.
    var counts: EventJournal.Counts { state.withLock { $0.journal.counts } }

    /// Answers `Monitor`: the status where asked for, the last events as far as they fit, then each
    /// new event. No event can be missed between `status` and the stream.
    func subscribe(
        _ call: ControlCall, _ request: Request, status: (EventJournal.Counts) -> JSONValue
    ) {
        state.withLock { state in
            state.subscribers.removeAll { !$0.call.isAlive }
            let subscriber = Subscriber(call: call, request: request)
            if request.wantsStatus {
                let answer = JSONValue.object([("status", status(state.journal.counts))])
                guard call.reply(answer, continues: true) else { return }
            }
            for answer in EventHub.replay(of: state.journal, to: subscriber) {
                guard call.reply(answer, continues: true) else { return }
            }
            if request.follow {
                state.subscribers.append(subscriber)
            } else {
                call.reply()
            }
        }
    }

    private static func answer(_ event: ControlEvent) -> JSONValue {
        .object([("event", event.json)])
    }

    private static func replay(of journal: EventJournal, to subscriber: Subscriber) -> [JSONValue] {
        let wanted = journal.last(.max).filter { subscriber.wants($0, isSignal: false) }
        var replay: [JSONValue] = []
        var bytes = 0
        for event in wanted.suffix(max(0, subscriber.request.last)).reversed() {
            let answer = answer(event)
            bytes += answer.bytes.count + answerOverheadBytes
            if bytes > maximumReplayBytes { break }
            replay.append(answer)
        }
        return replay.reversed()
    }

    // MARK: What the volume reports

    func volumeReports(_ event: VolumeEvent) {
        switch event {
        case .denied(let path, let protectionClass, let operation, let caller):
            emit(fileEvent(.denied, path, protectionClass, operation, caller))
        case .removedUnread(let path, let protectionClass, let operation, let caller):
            emit(fileEvent(.removedUnread, path, protectionClass, operation, caller))
        case .weakened(let path, let protectionClass, let now, let operation, let caller):
            var event = fileEvent(.weakened, path, protectionClass, operation, caller)
            event.detail = "it is class \(now.letter)"
            emit(event)
        case .refusedInSynchronised(
            let path, let protectionClass, let marked, let operation, let caller):
            var event = fileEvent(.syncRefused, path, protectionClass, operation, caller)
            event.detail = "\(marked) is synchronised: class C or D in it, nothing above"
            emit(event)
        case .arrivedInSynchronised(
            let path, let protectionClass, let marked, let operation, let files, let caller):
            var event = fileEvent(.syncExposed, path, protectionClass, operation, caller)
            event.files = files
            event.detail =
                files == nil
                ? "it keeps its class in \(marked), which is synchronised"
                : "they keep their class in \(marked), which is synchronised"
            emit(event)
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

    /// The event for a program's operation on a file, done or refused.
    private func fileEvent(
        _ kind: ControlEvent.Kind, _ path: String, _ protectionClass: ProtectionClass,
        _ operation: String, _ caller: Caller
    ) -> ControlEvent {
        let process = programs.process(of: Int(caller.pid), now: SystemClock.monotonic())
        return ControlEvent(
            kind: kind, state: state.withLock { $0.lockState }, path: path,
            protectionClass: protectionClass.letter, operation: operation,
            pid: process?.pid ?? (caller.pid == 0 ? nil : Int(caller.pid)), uid: Int(caller.uid),
            program: process?.program)
    }

    // MARK: Log lines

    private static func level(of event: ControlEvent) -> LogWriter.Level {
        switch ControlEvent.Kind(rawValue: event.kind) {
        case .integrityFailure, .lost, .kernelCheck: .error
        case .healed, .foreignFile, .removedUnread, .weakened, .syncExposed: .warning
        case .denied, .syncRefused: .info
        default: .notice
        }
    }

    private static func line(for event: ControlEvent) -> String {
        var words = [event.kind]
        if let operation = event.operation { words.append(operation) }
        if let path = event.path { words.append(path) }
        if let letter = event.protectionClass { words.append("class \(letter)") }
        if let program = event.program { words.append("program \(program)") }
        if let pid = event.pid { words.append("pid \(pid)") }
        if let uid = event.uid { words.append("uid \(uid)") }
        if let state = event.state { words.append("state \(state)") }
        if let seconds = event.secondsLeft { words.append("in \(seconds) s") }
        if let seconds = event.seconds { words.append("after \(seconds) s") }
        if let files = event.files { words.append("files \(files)") }
        let head = words.joined(separator: " ")
        return event.detail.map { head + ": " + $0 } ?? head
    }
}
