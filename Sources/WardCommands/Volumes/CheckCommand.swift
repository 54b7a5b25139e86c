import ArgumentParser
import Synchronization
import WardConsole
import WardControl
import WardDaemon
import WardFormat
import WardKeys
import WardSystem
import WardVolume
import WardVolumeCheck

struct CheckCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "check",
        abstract: "Look for damage in a volume, and put it right.",
        discussion: """
            Reads everything: keybag, directory records, names, links, attributes, and every page of \
            every file whose class can be read now. A mounted volume is checked by its daemon, in the \
            state it is in, while programs use it; of one that is not mounted the passcode is asked \
            for. Without it, or locked, class A, B, C and CX stay unread as the lock state says, and \
            that is told: their headers and names are looked at all the same.

            --repair changes nothing that can be read. Bytes that can't be read become zeros; files \
            of which nothing can be read, and what else is taken away, go to ward.quarantine in the \
            volume's directory; a file "ward check DATE.txt" in the volume says what happened to what. \
            A second run finds nothing.

            Exit code: 0 nothing is wrong, 15 everything that was wrong is repaired, 14 something is \
            wrong, 1 nothing was found but not everything could be looked at.

            Examples:
              ward check ~/papers
              ward check ~/.papers --repair
              ward check ~/.papers --locked --json | jq -r '.finding.path // empty'
            """)

    @OptionGroup var target: PasscodeTargetArgument
    @Flag(help: "Put right what is found.") var repair = false
    @Flag(help: "Of a volume that is not mounted: ask for no passcode, read class D alone.")
    var locked = false
    @OptionGroup var passcode: PasscodeOptions
    @OptionGroup var options: ReportOptions

    private static let what = "cannot check"
    private static let shownNames = 20

    func validate() throws {
        if locked && passcode.isGiven {
            throw ValidationError("--locked needs no passcode")
        }
    }

    func run() throws {
        let console = options.console
        let target = try target.find(CheckCommand.what)
        let findings = Findings(console)
        let report: CheckReport
        let place: String
        switch target {
        case .mounted(let connection):
            let status = try connection.status()
            place = status.mountpoint
            try checkKeybag(status.volume, opens: repair, findings)
            checkPolicy(status, findings)
            report = try CheckCommand.check(connection, repair: repair, findings, console)
        case .unmounted(let path):
            place = path
            report = try check(path, findings, console)
        }
        tell(report, findings, place, isMounted: target.isMounted, console)
        let exit = CheckCommand.exitStatus(report, findings)
        if exit != .success { throw ExitCode(exit.rawValue) }
    }

    private static func exitStatus(_ report: CheckReport, _ findings: Findings) -> ExitStatus {
        let (all, repaired) = findings.counts
        if all > repaired { return .damaged }
        if all > 0 { return .findings }
        return report.isComplete ? .success : .someFailed
    }

    // MARK: The keybag

    /// Checks both keybag copies. `opens`: opening the keybag replaces a bad copy by the good one.
    private func checkKeybag(
        _ path: String, opens: Bool, _ findings: Findings
    ) throws(CommandFailure) {
        let stateRoot = StateDirectory.defaultRoot()
        do throws(KeybagError) {
            let problems = try KeybagStore.problems(volumePath: path, stateRoot: stateRoot)
            if opens, !problems.isEmpty {
                _ = try KeybagStore(volumePath: path, stateRoot: stateRoot)
            }
            let left =
                opens && !problems.isEmpty
                ? try KeybagStore.problems(volumePath: path, stateRoot: stateRoot) : problems
            for (file, problem) in problems {
                let isRepaired = opens && !left.contains { $0.path == file }
                findings.add(
                    CheckFinding(
                        .keybag, path: file, problem: problem, remedy: "replaced by the other copy",
                        outcome: isRepaired
                            ? .repaired : opens ? .left("it could not be written") : .found))
            }
        } catch {
            throw CommandFailure(CheckCommand.what, path, error)
        }
    }

    // MARK: Mounted

    private static func check(
        _ connection: VolumeConnection, repair: Bool, _ findings: Findings, _ console: Console
    ) throws(CommandFailure) -> CheckReport {
        var report: CheckReport?
        var line = ProgressLine(console)
        try connection.call { client throws(ControlError) in
            try client.check(repair: repair) { answer in
                if let finding = answer["finding"].flatMap(CheckFinding.init(json:)) {
                    line.clear()
                    findings.add(finding)
                } else if let progress = answer["progress"].flatMap(CheckProgress.init(json:)) {
                    line.update(CheckCommand.text(progress))
                } else if let json = answer["report"] {
                    report = CheckReport(json: json)
                }
            }
        }
        line.clear()
        guard let report else {
            throw CommandFailure(
                what, connection.path, why: "the daemon did not say what it found",
                hint: "ward version and ward status --json tell the versions of both sides",
                status: .software)
        }
        return report
    }

    private static func text(_ progress: CheckProgress) -> String {
        "check: \(Text.grouped(progress.files)) files in \(Text.grouped(progress.directories)) "
            + "directories, \(Text.grouped(progress.bytes >> 20)) MiB"
    }

    // MARK: Not mounted

    private func check(
        _ path: String, _ findings: Findings, _ console: Console
    ) throws -> CheckReport {
        let what = CheckCommand.what
        // Class keys will be in memory.
        SecretInput.leaveNoDump()
        let lock = try VolumeDirectory.lock(path, what)
        defer { _ = lock.directoryDescriptor }
        try checkKeybag(path, opens: true, findings)
        let store = try VolumeDirectory.open(path, what)
        let keyring = ClassKeyring(classBPublicKey: store.classBPublicKey)
        defer { keyring.evict(.all) }
        let volumeKey = try CheckCommand.openDeviceSlot(store, keyring, path)
        try openPasscodeSlot(store, keyring, path, findings, console)
        return try check(path, store, volumeKey, keyring, findings, console)
    }

    private static func openDeviceSlot(
        _ store: KeybagStore, _ keyring: ClassKeyring, _ path: String
    ) throws(CommandFailure) -> SecretBytes {
        do throws(KeybagError) {
            return try store.openDeviceSlot(into: keyring)
        } catch {
            throw CommandFailure(what, path, error)
        }
    }

    private func openPasscodeSlot(
        _ store: KeybagStore, _ keyring: ClassKeyring, _ path: String, _ findings: Findings,
        _ console: Console
    ) throws(CommandFailure) {
        guard store.hasPasscode, !locked else {
            return try checkPolicy(store, nil, path, findings)
        }
        let secret = try passcode.read(
            asking: "Passcode of \(Text.printable(path)): ", console)
        let passcode = try VolumeDirectory.passcode(secret, path, CheckCommand.what)
        do throws(KeybagError) {
            try store.openPasscodeSlot(passcode, into: keyring)
        } catch {
            throw CommandFailure(CheckCommand.what, path, error)
        }
        let given: Passcode? = consume passcode
        try checkPolicy(store, given, path, findings)
    }

    private func check(
        _ path: String, _ store: KeybagStore, _ volumeKey: borrowing SecretBytes,
        _ keyring: ClassKeyring, _ findings: Findings, _ console: Console
    ) throws(CommandFailure) -> CheckReport {
        do throws(VolumeOpenError) {
            let root = try Volume.checkRoot(
                backingPath: path, volumeKey: volumeKey, repairs: repair)
            for finding in root { findings.add(finding) }
            if !root.isEmpty, !repair {
                var report = CheckReport()
                report.unreachable = ["/: what is in the volume, before its root is repaired"]
                return report
            }
            let volume = try Volume(
                backingPath: path, parameters: store.parameters, volumeKey: volumeKey,
                keyring: keyring, readOnly: !repair, observer: nil)
            let check = VolumeCheck(
                volume, repairs: repair, name: VolumeCheck.nameOfNow(),
                onFinding: { findings.add($0) })
            var line = ProgressLine(console)
            let report = check.run { line.update(CheckCommand.text($0)) }
            line.clear()
            if repair { try CheckCommand.close(volume, path) }
            return report
        } catch {
            throw CommandFailure(CheckCommand.what, path, error)
        }
    }

    // MARK: Telling

    /// Prints findings as they come, from any thread.
    private final class Findings: Sendable {
        private let console: Console
        private let state = Mutex((all: 0, repaired: 0))

        init(_ console: Console) { self.console = console }

        var counts: (all: Int, repaired: Int) { state.withLock { $0 } }

        func add(_ finding: CheckFinding) {
            state.withLock { state in
                state.all += 1
                if finding.isRepaired { state.repaired += 1 }
                // Under the mutex, so that findings are not mixed.
                show(finding)
            }
        }

        private func show(_ finding: CheckFinding) {
            if console.isJSON { return console.json(.object([("finding", finding.json)])) }
            let lines = CheckReportText.lines(of: finding).map { Text.printable($0) }
            let style = console.output
            console.result(finding.isRepaired ? style.yellow(lines[0]) : style.red(lines[0]))
            for line in lines.dropFirst() { console.result(line) }
        }
    }

    private func tell(
        _ report: CheckReport, _ findings: Findings, _ place: String, isMounted: Bool,
        _ console: Console
    ) {
        let (all, repaired) = findings.counts
        if console.isJSON {
            return console.json(
                .object([
                    ("report", report.json), ("findings", .int(Int64(all))),
                    ("repaired", .int(Int64(repaired))),
                ]))
        }
        let unread = ProtectionClass.allCases.compactMap { protectionClass in
            report.unread[protectionClass].map {
                "\(Text.count($0, "file")) of class \(protectionClass.letter)"
            }
        }
        if !unread.isEmpty {
            console.note(
                "locked, so not read: \(unread.joined(separator: ", ")): "
                    + (isMounted
                        ? "ward unlock \(Text.shellQuoted(place)), then check again"
                        : "check again with the passcode"))
        }
        for text in report.unreachable.prefix(CheckCommand.shownNames) {
            console.note("not looked at: \(Text.printable(text))")
        }
        if report.unreachable.count > CheckCommand.shownNames {
            console.note(
                "and \(Text.grouped(report.unreachable.count - CheckCommand.shownNames)) more")
        }
        if !report.foreign.isEmpty {
            let names = report.foreign.prefix(3).map { Text.printable($0) }
            console.note(
                "\(Text.count(report.foreign.count, "name")) in the volume's directory that ward did "
                    + "not make, left alone: \(names.joined(separator: ", "))")
        }
        if report.isInDoubt {
            console.note(
                "the last unclean end still excuses what it can have left: "
                    + "--repair, unlocked, ends that")
        }
        if let path = report.reportPath { console.note("what happened to what: \(path)") }
        let progress = report.progress
        let found =
            all == 0
            ? (report.isComplete ? "nothing is wrong" : "nothing was found, not all was looked at")
            : Text.count(all, "finding") + (repair ? ", \(Text.grouped(repaired)) repaired" : "")
        console.confirm(
            "\(found): \(Text.count(progress.files, "file")) in "
                + "\(progress.directories == 1 ? "1 directory" : "\(Text.grouped(progress.directories)) directories")"
        )
        if all > repaired, !repair {
            console.note("to put it right: ward check --repair \(Text.shellQuoted(place))")
        }
    }
}

extension CheckCommand {
    private static func close(_ volume: Volume, _ path: String) throws(VolumeOpenError) {
        do throws(Errno) {
            try volume.close()
        } catch {
            throw VolumeOpenError(.system(error), path: path, "can't be closed: \(error)")
        }
    }

    // MARK: The policy

    /// Tells of a policy that was set without the passcode. A repair seals the stronger values.
    private func checkPolicy(
        _ store: KeybagStore, _ passcode: borrowing Passcode?, _ path: String,
        _ findings: Findings
    ) throws(CommandFailure) {
        guard store.isPolicyForged else { return }
        do throws(KeybagError) {
            if repair { try store.changePolicy(PolicyChange(), passcode: passcode) }
        } catch {
            throw CommandFailure(CheckCommand.what, path, error)
        }
        findings.add(CheckCommand.forgedPolicy(path, repair ? .repaired : .found))
    }

    /// The same of a mounted volume, whose daemon found it.
    private func checkPolicy(_ status: VolumeStatus, _ findings: Findings) {
        guard status.policyForged else { return }
        findings.add(
            CheckCommand.forgedPolicy(
                status.volume, .left("ward policy set, with the passcode")))
    }

    private static func forgedPolicy(
        _ volume: String, _ outcome: CheckFinding.Outcome
    ) -> CheckFinding {
        CheckFinding(
            .keybag, path: Path.joined(volume, Keybag.fileName),
            problem: KeybagStore.forgedPolicyText, remedy: "the stronger values are stored",
            outcome: outcome)
    }
}

extension PasscodeTarget {
    fileprivate var isMounted: Bool {
        switch self {
        case .mounted: true
        case .unmounted: false
        }
    }
}
