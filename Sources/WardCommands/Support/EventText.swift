import WardConsole
import WardControl

/// Text for an event, in one line.
enum EventText {
    enum Tone {
        case bad, warning, good, plain
    }

    static func tone(_ event: ControlEvent) -> Tone {
        switch ControlEvent.Kind(rawValue: event.kind) {
        case .denied, .removedUnread, .weakened, .syncRefused, .syncExposed, .integrityFailure,
            .lost, .kernelCheck:
            .bad
        case .willBecomeUnavailable, .didBecomeUnavailable, .locked, .reboot, .trustedHost: .warning
        case .didBecomeAvailable, .firstUnlock: .good
        default: .plain
        }
    }

    /// The time, kind and details of an event.
    static func render(_ event: ControlEvent, _ style: Style) -> String {
        let kind = Text.padded(Text.printable(event.kind), 21)
        var line = style.dim(Text.printable(event.time)) + "  "
        switch tone(event) {
        case .bad: line += style.red(kind)
        case .warning: line += style.yellow(kind)
        case .good: line += style.green(kind)
        case .plain: line += kind
        }
        return line + "  " + details(event)
    }

    /// The details: "/diary/monday, class A, open, cat (pid 812, uid 1000), 12 times until
    /// 14:03:10".
    static func details(_ event: ControlEvent) -> String {
        var details: [String] = []
        if let path = event.path { details.append(Text.printable(path)) }
        if let letter = event.protectionClass { details.append("class \(Text.printable(letter))") }
        if let operation = event.operation { details.append(Text.printable(operation)) }
        if let who = who(event) { details.append(who) }
        let isOfFile =
            event.kind == ControlEvent.Kind.denied.rawValue
            || event.kind == ControlEvent.Kind.removedUnread.rawValue
            || event.kind == ControlEvent.Kind.weakened.rawValue
        if isOfFile, let state = event.state {
            details.append(StateText.name(state))
        }
        if let seconds = event.secondsLeft {
            details.append("in \(Text.duration(seconds: seconds))")
        }
        if let seconds = event.seconds {
            details.append("took \(Text.preciseDuration(seconds: seconds))")
        }
        if let files = files(event) { details.append(files) }
        if let detail = event.detail { details.append(Text.printable(detail)) }
        if let count = event.count {
            let last = event.lastTime.map { ", the last at \(clock($0))" } ?? ""
            details.append("\(Text.grouped(count)) times\(last)")
        }
        if details.isEmpty, let state = event.state { details.append(StateText.name(state)) }
        return details.joined(separator: ", ")
    }

    /// The kind of an event in one or two words.
    static func word(_ event: ControlEvent) -> String {
        switch ControlEvent.Kind(rawValue: event.kind) {
        case .willBecomeUnavailable: "locking"
        case .didBecomeUnavailable: "closed"
        case .locked: "locked"
        case .didBecomeAvailable: "unlocked"
        case .firstUnlock: "first unlock"
        case .reboot: "rebooted"
        case .denied: "refused"
        case .removedUnread: "removed unread"
        case .weakened: "weakened"
        case .syncRefused: "refused in sync"
        case .syncExposed: "synced"
        case .integrityFailure: "damaged"
        case .healed: "mended"
        case .lost: "lost"
        case .foreignFile: "foreign file"
        case .passcodeChanged: "passcode changed"
        case .mounted: "mounted"
        case .unmounting: "unmounting"
        case .note: "note"
        case .trustedHost: "trusted host"
        case .kernelCheck: "kernel"
        case nil: Text.printable(event.kind)
        }
    }

    /// The details for a narrow screen: "cat open A /diary/monday, 12 times".
    static func brief(_ event: ControlEvent) -> String {
        var words: [String] = []
        if let program = event.program { words.append(Text.printable(program)) }
        if let operation = event.operation { words.append(Text.printable(operation)) }
        if let letter = event.protectionClass { words.append(Text.printable(letter)) }
        if let path = event.path { words.append(Text.printable(path)) }
        var parts = words.isEmpty ? [] : [words.joined(separator: " ")]
        if let count = event.count { parts.append("\(Text.grouped(count)) times") }
        if let seconds = event.secondsLeft {
            parts.append("in \(Text.duration(seconds: seconds))")
        }
        if let seconds = event.seconds {
            parts.append("took \(Text.preciseDuration(seconds: seconds))")
        }
        if let files = files(event) { parts.append(files) }
        if let detail = event.detail { parts.append(Text.printable(detail)) }
        return parts.joined(separator: ", ")
    }

    private static func files(_ event: ControlEvent) -> String? {
        event.files.map {
            Text.count($0, "file")
                + (event.kind == ControlEvent.Kind.syncExposed.rawValue ? " in it" : " dropped")
        }
    }

    /// The time of day of an RFC 3339 time, to the second.
    static func clock(_ time: String) -> String {
        guard let start = time.firstIndex(of: "T") else { return Text.printable(time) }
        return Text.printable(time[time.index(after: start)...].prefix(8))
    }

    private static func who(_ event: ControlEvent) -> String? {
        let numbers = [event.pid.map { "pid \($0)" }, event.uid.map { "uid \($0)" }]
            .compactMap(\.self).joined(separator: ", ")
        guard let program = event.program else { return numbers.isEmpty ? nil : numbers }
        return Text.printable(program) + (numbers.isEmpty ? "" : " (\(numbers))")
    }
}
