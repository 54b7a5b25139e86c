import WardConsole
import WardControl
import WardDaemon
import WardKeys

/// Text for a volume's status.
enum StatusText {
    static func render(_ status: VolumeStatus, _ style: Style) -> String {
        var lines: [String] = []
        var heading = style.bold(Text.printable(status.mountpoint)) + "  "
        heading += StateText.coloured(status.state, style)
        if let remaining = status.graceRemainingSeconds {
            heading += ", protected files close in \(Text.duration(seconds: remaining))"
        }
        if status.manualClock {
            heading += ", " + style.yellow("the clock is manual (ward advance)")
        }
        if let left = status.eraseInSeconds {
            heading += ", " + style.red("erase in \(Text.duration(seconds: left))")
        }
        lines.append(heading)
        func add(_ name: String, _ value: String) {
            lines.append("  \(Text.padded(name, 9))  \(value)")
        }
        add("volume", Text.printable(status.volume))
        add("uuid", status.uuid)
        if let format = format(status) { add("format", format) }
        add("since", status.since)
        add("passcode", passcode(status, style))
        if let kit = recovery(status.recoveryKit, volume: status.volume, style) {
            add("recovery", kit)
        }
        add("grace", Text.duration(seconds: status.graceSeconds))
        if status.policyForged { add("policy", style.red(KeybagStore.forgedPolicyText)) }
        add("daemon", "pid \(status.pid), version \(status.version)")
        if status.transport == TransportChoice.ioUring.rawValue { add("requests", "by io_uring") }
        if !status.hosts.isEmpty {
            add("hosts", hosts(status) + " connected: A and B stay open at a lock")
        }
        if status.readOnly { add("read-only", "yes") }
        if let kernel = kernel(status, style) { add("kernel", kernel) }
        if let triggers = status.locksAt { add("locks at", locksAt(triggers, status, style)) }
        for line in data(status, style) { add(line.name, line.value) }
        lines += classes(status, style)
        if let next = next(status) { lines.append("  next       \(next)") }
        return lines.joined(separator: "\n")
    }

    /// "sleep, shutdown, logout; not screen (no login manager)", or "nothing" with the reason.
    static func locksAt(
        _ triggers: [LockTrigger], _ status: VolumeStatus, _ style: Style
    ) -> String {
        guard status.passcodeSet else { return style.yellow("nothing (no passcode is set)") }
        func words(_ trigger: LockTrigger) -> String {
            Text.printable(trigger.kind) + (trigger.why.map { " (\(Text.printable($0)))" } ?? "")
        }
        let armed = triggers.filter(\.armed)
        let missing = triggers.filter { !$0.armed }
        if armed.isEmpty {
            let why = Set(missing.compactMap(\.why)).sorted().map { Text.printable($0) }
            return style.yellow(
                "nothing" + (why.isEmpty ? "" : " (\(why.joined(separator: "; ")))"))
        }
        var text = armed.map(words).joined(separator: ", ")
        if !missing.isEmpty {
            text += style.yellow("; not " + missing.map(words).joined(separator: ", "))
        }
        return text
    }

    /// The volume's format; nil where the daemon does not say.
    private static func format(_ status: VolumeStatus) -> String? {
        guard let format = status.format else { return nil }
        return status.isUpgrading
            ? "\(format), not all of it upgraded yet (ward upgrade)" : "\(format)"
    }

    /// The failure of the check of the kernel; nil where it passed, or is still under way.
    static func kernel(_ status: VolumeStatus, _ style: Style) -> String? {
        let why = Text.printable(status.kernelCheckWhy ?? "")
        return switch status.kernelCheck {
        case "failed": style.red(why)
        case "notChecked": style.yellow("not checked: \(why)")
        default: nil
        }
    }

    /// The kernel's requests, the most frequent first.
    static func requests(_ status: VolumeStatus) -> String {
        let sorted = status.requests.sorted { ($1.count, $0.name) < ($0.count, $1.name) }
        return sorted.map {
            "  \(Text.padded($0.name, 15))  \(Text.paddedLeft(Text.grouped($0.count), 12))"
        }.joined(separator: "\n")
    }

    /// The names of connected hosts, each once: "laptop, desk (2)".
    static func hosts(_ status: VolumeStatus) -> String {
        var names: [(name: String, count: Int)] = []
        for name in status.hosts {
            if let index = names.firstIndex(where: { $0.name == name }) {
                names[index].count += 1
            } else {
                names.append((name, 1))
            }
        }
        return names.map { Text.printable($0.name) + ($0.count > 1 ? " (\($0.count))" : "") }
            .joined(separator: ", ")
    }

    /// Whether a passcode is set, how many tries are left, and when the next one is possible.
    static func passcode(_ status: VolumeStatus, _ style: Style) -> String {
        guard status.passcodeSet else { return "not set: a lock changes nothing" }
        var text = "set"
        if let tries = status.triesLeft {
            let end = status.eraseAfterTries ? "erased" : "disabled"
            text +=
                tries == 0
                ? ", " + style.red("no try left: the volume is \(end)")
                : ", \(Text.count(tries, "try")) left, then it is \(end)"
        }
        if let wait = status.retrySeconds {
            text += ", " + style.yellow("the next in \(Text.duration(seconds: wait))")
        }
        return text
    }

    /// Advice about recovery kits; nil where nothing is to be done.
    static func recovery(_ standing: String?, volume: String, _ style: Style) -> String? {
        let place = Text.shellQuoted(volume)
        return switch standing {
        case "none":
            style.yellow("no kit is known") + ": ward recovery create \(place) --out FILE"
        case "unverified":
            style.yellow("no kit was verified for a year") + ": ward recovery verify KIT"
        default: nil
        }
    }

    /// Lines about data that is not safe yet or was lost; empty where there is none.
    static func data(
        _ status: VolumeStatus, _ style: Style
    ) -> [(name: String, value: String)] {
        var lines: [(String, String)] = []
        if let bytes = status.unsyncedBytes, bytes > 0 {
            lines.append(("not synced", Text.size(bytes: bytes)))
        }
        if let bytes = status.pendingStoreBytes, bytes > 0 {
            lines.append(("to store", style.yellow(Text.size(bytes: bytes) + " accepted")))
        }
        if status.lost > 0 {
            var value = style.red(Text.grouped(status.lost))
            let names = status.lostPaths.suffix(3).map { Text.printable($0) }
            if !names.isEmpty { value += ": " + names.joined(separator: ", ") }
            lines.append(("lost", value))
        }
        if status.integrityFailures > 0 {
            lines.append(
                (
                    "damaged",
                    style.red(Text.count(status.integrityFailures, "failure"))
                        + " (ward events)"
                ))
        }
        if status.denied > 0 {
            lines.append(("refused", Text.count(status.denied, "time") + " (ward events)"))
        }
        return lines
    }

    private static func classes(_ status: VolumeStatus, _ style: Style) -> [String] {
        let width = status.classes.map(\.name.count).max() ?? 0
        let head = "  class  \(Text.padded("", width))  readable  open files"
        return [style.dim(head)]
            + status.classes.map { entry in
                let readable = Text.padded(entry.available ? "yes" : "no", 8)
                var line = "  \(Text.padded(entry.letter, 5))  \(Text.padded(entry.name, width))  "
                line += entry.available ? style.green(readable) : style.red(readable)
                line += "  \(Text.grouped(entry.openFiles))"
                if let note = StateText.classNote(entry, status) { line += "  \(note)" }
                return line
            }
    }

    /// The most likely next command.
    private static func next(_ status: VolumeStatus) -> String? {
        let place = Text.shellQuoted(status.mountpoint)
        if status.eraseInSeconds != nil { return "ward erase --cancel \(place)" }
        if status.kernelCheck == "failed" { return nil }
        switch status.state {
        case "noPasscode": return "ward passcode set \(place)"
        case "beforeFirstUnlock", "locked", "lockedWithHost":
            return status.triesLeft == 0 || status.retrySeconds != nil
                ? nil : "ward unlock \(place)"
        default: return nil
        }
    }
}
