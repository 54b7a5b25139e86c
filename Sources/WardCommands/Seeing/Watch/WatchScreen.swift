import WardConsole
import WardControl

/// The data of a mount at one moment.
struct WatchScene {
    /// The path from the command line, shown until the first status names the mount point.
    var place: String
    var status: VolumeStatus?
    /// Seconds since the status came, for countdowns in between.
    var statusAge = 0.0
    /// The oldest first.
    var events: [ControlEvent] = []
    /// Processes that use files of class A.
    var holders: HolderReport?
    /// The reason why the daemon does not answer; nil while it does.
    var problem: String?
    /// The result of a key.
    var message: String?
    /// The time of day.
    var clock = ""
}

/// The screen of `ward watch`, computed from the data and the terminal's size.
struct WatchScreen {
    let columns: Int
    let rows: Int
    /// Whether the terminal takes UTF-8.
    var isUnicode = true

    private var ellipsis: String { isUnicode ? "…" : "~" }

    /// At most `rows` lines, each at most `columns` wide.
    func lines(_ scene: WatchScene) -> [WatchLine] {
        arranged(scene).prefix(rows).map { line in
            (isUnicode ? line : line.inASCII).fitted(to: columns, ellipsis: ellipsis)
        }
    }

    /// Gives room to the most important parts first; events get the rest.
    private func arranged(_ scene: WatchScene) -> [WatchLine] {
        let keys = footer(scene)
        guard rows > 3 else { return [state(scene)] + (rows > 1 ? [keys] : []) }
        var room = rows - 3
        func take(_ lines: [WatchLine], _ limit: Int) -> [WatchLine] {
            let taken = Array(lines.prefix(max(0, min(room, limit))))
            room -= taken.count
            return taken
        }
        var classes = take(classTable(scene), room >= 5 ? 5 : 0)
        if classes.isEmpty { classes = take([classSummary(scene)], 1) }
        let alerts = take(alerts(scene), 3)
        let facts = take([facts(scene)], scene.status == nil ? 0 : 1)
        let head = room >= 4 && classes.count > 1 ? take([classHead], 1) : []
        // Room for at least two events and their heading.
        let reserved = min(room, 3)
        room -= reserved
        let holders = take(holderLines(scene), max(0, room / 2))
        var gaps = min(3, room)
        room -= gaps
        let events = eventLines(scene, room: room + reserved)

        func gap() -> [WatchLine] {
            gaps -= 1
            return gaps >= 0 ? [WatchLine()] : []
        }
        var lines = [title(scene), state(scene)] + alerts + facts
        lines += gap() + head + classes
        if !holders.isEmpty { lines += gap() + holders }
        lines += gap() + events
        while lines.count < rows - 1 { lines.append(WatchLine()) }
        return lines.prefix(rows - 1) + [keys]
    }

    // MARK: Head

    private func title(_ scene: WatchScene) -> WatchLine {
        var line = WatchLine(" ward ", .dim)
        line.add(Text.printable(scene.status?.mountpoint ?? scene.place), .bold)
        return line.fitted(to: columns - scene.clock.count - 3, ellipsis: ellipsis)
            .with(right: scene.clock + " ", columns: columns)
    }

    private func state(_ scene: WatchScene) -> WatchLine {
        var line = WatchLine(" ")
        if let problem = scene.problem {
            line.add(" NOT THERE ", .badBadge)
            line.add("  " + Text.oneLine(problem))
            return line
        }
        guard let status = scene.status else {
            line.add(" … ", .bold)
            return line
        }
        switch status.state {
        case "unlocked": line.add(" UNLOCKED ", .goodBadge)
        case "noPasscode": line.add(" OPEN ", .warningBadge)
        case "locking": line.add(" LOCKING ", .warningBadge)
        case "lockedWithHost": line.add(" LOCKED ", .warningBadge)
        case "locked", "beforeFirstUnlock": line.add(" LOCKED ", .badBadge)
        default: line.add(" " + Text.printable(status.state) + " ", .bold)
        }
        switch status.state {
        case "noPasscode": line.add("  no passcode is set", .warning)
        case "beforeFirstUnlock": line.add("  before the first unlock")
        case "lockedWithHost":
            line.add("  A and B open for \(StatusText.hosts(status))", .warning)
            return line
        case "locking":
            let left = remaining(status.graceRemainingSeconds ?? 0, scene)
            line.add("  A and B close in \(seconds(left))  ", .warning)
            line.add(bar(left, of: status.graceSeconds), .warning)
            return line
        default: break
        }
        line.add("  since \(LocalTime.clock(status.since))", .dim)
        return line
    }

    private func bar(_ left: Double, of whole: Double) -> String {
        let cells = min(20, max(0, columns - 44))
        guard cells > 3, whole > 0 else { return "" }
        let filled = min(cells, max(0, Text.whole((left / whole * Double(cells)).rounded(.up))))
        return String(repeating: isUnicode ? "█" : "#", count: filled)
            + String(repeating: isUnicode ? "░" : "-", count: cells - filled)
    }

    private func facts(_ scene: WatchScene) -> WatchLine {
        guard let status = scene.status else { return WatchLine() }
        var facts: [(String, WatchLine.Tone)] = []
        if let tries = status.triesLeft {
            facts.append((Text.count(tries, "try") + " left", tries < 10 ? .warning : .plain))
        }
        if let wait = status.retrySeconds {
            let left = remaining(wait, scene)
            if left > 0 { facts.append(("next try in \(seconds(left))", .warning)) }
        }
        if status.passcodeSet {
            facts.append(("grace \(Text.duration(seconds: status.graceSeconds))", .plain))
        }
        if let bytes = status.unsyncedBytes {
            facts.append(
                (bytes == 0 ? "all synced" : "\(Text.size(bytes: bytes)) not synced", .plain))
        }
        if let bytes = status.pendingStoreBytes, bytes > 0 {
            facts.append(("\(Text.size(bytes: bytes)) to store", .warning))
        }
        if status.denied > 0 { facts.append(("\(Text.grouped(status.denied)) refused", .plain)) }
        if status.readOnly { facts.append(("read-only", .plain)) }
        if status.manualClock { facts.append(("manual clock", .plain)) }
        var line = WatchLine(" ")
        for (index, fact) in facts.enumerated() {
            if index > 0 { line.add(isUnicode ? " · " : " | ", .dim) }
            line.add(fact.0, fact.1)
        }
        return line
    }

    private func alerts(_ scene: WatchScene) -> [WatchLine] {
        guard let status = scene.status else { return [] }
        var lines: [WatchLine] = []
        if status.lost > 0 {
            let names = status.lostPaths.reversed().map { Text.printable($0) }
            let which = names.isEmpty ? "" : ": " + names.joined(separator: ", ")
            lines.append(WatchLine(" LOST  \(Text.grouped(status.lost))\(which)", .bad))
        }
        if status.integrityFailures > 0 {
            let number = Text.count(status.integrityFailures, "integrity failure")
            lines.append(WatchLine(" DAMAGED  \(number)", .bad))
        }
        if status.triesLeft == 0 {
            lines.append(WatchLine(" NO TRY LEFT  only a recovery kit opens it", .bad))
        }
        return lines
    }

    private func footer(_ scene: WatchScene) -> WatchLine {
        if let message = scene.message { return WatchLine(" " + Text.oneLine(message), .bold) }
        var line = WatchLine()
        for (key, what) in [("q", "quit"), ("l", "lock"), ("L", "lock at once")] {
            line.add("  ")
            line.add(key, .bold)
            line.add(" " + what, .dim)
        }
        return line
    }

    // MARK: Classes

    private var isWide: Bool { columns >= 72 }

    private var classHead: WatchLine {
        WatchLine(
            isWide
                ? " class" + String(repeating: " ", count: 39) + "now       open files"
                : " class now       open files", .dim)
    }

    private func classTable(_ scene: WatchScene) -> [WatchLine] {
        guard let status = scene.status else { return [] }
        return status.classes.map { entry in
            var line = WatchLine(" ")
            line.add(Text.padded(entry.letter, isWide ? 4 : 6), .bold)
            if isWide { line.add(Text.padded(entry.name, 40)) }
            let isKnown = scene.problem == nil
            line.add(
                Text.padded(!isKnown ? "?" : entry.available ? "readable" : "closed", 10),
                !isKnown ? .dim : entry.available ? .good : .bad)
            line.add(Text.paddedLeft(Text.grouped(entry.openFiles), isWide ? 10 : 5))
            if let note = classNote(entry, status, scene) { line.add("  " + note, .warning) }
            return line
        }
    }

    private func classNote(
        _ entry: ClassStatus, _ status: VolumeStatus, _ scene: WatchScene
    ) -> String? {
        guard entry.available, entry.letter == "CX",
            let left = status.userInactiveRemainingSeconds, status.state != "unlocked"
        else { return nil }
        return seconds(remaining(left, scene)) + " left"
    }

    /// All classes in one line.
    private func classSummary(_ scene: WatchScene) -> WatchLine {
        var line = WatchLine(" ")
        for entry in scene.status?.classes ?? [] {
            line.add(entry.letter + " ", .bold)
            line.add(entry.available ? "yes  " : "no  ", entry.available ? .good : .bad)
        }
        return line
    }

    // MARK: Holders and events

    private func holderLines(_ scene: WatchScene) -> [WatchLine] {
        guard let report = scene.holders, !report.holders.isEmpty else { return [] }
        let number = report.holders.count + report.leftOut
        var lines = [WatchLine(" files of class A are used by", .dim)]
        lines[0].add(number > 4 ? " (\(Text.grouped(number)))" : "", .dim)
        for holder in report.holders {
            var line = WatchLine("   ")
            line.add(Text.printable(holder.program), .bold)
            line.add(" \(holder.pid)", .dim)
            line.add("  \(Text.printable(holder.path))  ")
            line.add(HolderText.use(holder.use), .dim)
            lines.append(line)
        }
        return lines
    }

    /// The latest event at the bottom, with a heading where there is room for more than one.
    private func eventLines(_ scene: WatchScene, room: Int) -> [WatchLine] {
        guard room > 0 else { return [] }
        let heading = room > 2 ? [WatchLine(" events", .dim)] : []
        let shown = scene.events.suffix(room - heading.count)
        return heading
            + shown.map { event in
                var line = WatchLine(" " + LocalTime.clock(event.lastTime ?? event.time), .dim)
                let tone: WatchLine.Tone =
                    switch EventText.tone(event) {
                    case .bad: .bad
                    case .warning: .warning
                    case .good: .good
                    case .plain: .plain
                    }
                line.add("  ")
                line.add(EventText.word(event), tone)
                let rest = EventText.brief(event)
                if !rest.isEmpty { line.add("  " + rest) }
                return line
            }
    }

    // MARK: Times

    /// The rest of `seconds` since the status; a manual clock does not move in between.
    private func remaining(_ seconds: Double, _ scene: WatchScene) -> Double {
        scene.status?.manualClock == true ? seconds : max(0, seconds - scene.statusAge)
    }

    private func seconds(_ value: Double) -> String {
        Text.duration(seconds: value.rounded(.up))
    }
}
