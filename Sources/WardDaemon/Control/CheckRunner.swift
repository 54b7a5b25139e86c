import Glibc
import Synchronization
import WardControl
import WardSystem
import WardVolume
import WardVolumeCheck

/// Runs checks of a mounted volume, one at a time, on a thread of their own: `Check` of the control
/// socket.
///
/// Concurrency: any thread. A check ends with its client, and before the volume is closed.
final class CheckRunner: Sendable {
    /// The time between two answers with progress alone.
    private static let interval = Duration.milliseconds(200)
    /// The check waits for its client while more bytes than this are unread.
    private static let maximumBacklog = 64 * 1024

    private let volume: Volume
    private let hub: EventHub
    private let queue = SerialQueue("ward-check", limit: 1, starts: .atOnce)
    private let isBusy = Atomic(false)
    private let isStopping = Atomic(false)

    init(volume: Volume, hub: EventHub) {
        self.volume = volume
        self.hub = hub
    }

    func begin(_ call: ControlCall) {
        let repairs = call.parameters["repair"]?.boolValue ?? false
        if repairs, volume.isReadOnly {
            return call.fail(.failed(what: "repair", why: "the volume is mounted read-only"))
        }
        guard !isBusy.exchange(true, ordering: .sequentiallyConsistent) else {
            return call.fail(.busy(reason: "another check is under way"))
        }
        let isTaken = queue.add { [self] in
            run(call, repairs)
            isBusy.store(false, ordering: .sequentiallyConsistent)
        }
        if !isTaken {
            isBusy.store(false, ordering: .sequentiallyConsistent)
            call.fail(.busy(reason: "the mount ends"))
        }
    }

    /// Ends a check under way; returns after its end.
    func stop() {
        isStopping.store(true, ordering: .sequentiallyConsistent)
        queue.end()
    }

    private func run(_ call: ControlCall, _ repairs: Bool) {
        let found = FoundFindings()
        let shouldStop: @Sendable () -> Bool = { [self] in
            isStopping.load(ordering: .sequentiallyConsistent) || !call.isAlive
        }
        let context: WorkerContext
        do throws(Errno) {
            context = try WorkerContext(allocatingFor: volume)
        } catch {
            return call.fail(.failed(what: repairs ? "repair" : "check", why: "\(error)"))
        }
        let check = VolumeCheck(
            volume, repairs: repairs, name: CheckRunner.name(), context: context,
            onFinding: { found.add($0) }, shouldStop: shouldStop)
        var told = SystemClock.monotonic()
        let report = check.run { progress in
            tell(found, call, shouldStop)
            let now = SystemClock.monotonic()
            guard now - told >= CheckRunner.interval else { return }
            told = now
            call.reply(.object([("progress", progress.json)]), continues: true)
        }
        tell(found, call, shouldStop)
        let (findings, repaired) = (report.progress.findings, report.repaired)
        if repairs, findings > 0 {
            hub.emit(
                ControlEvent(
                    kind: .note, detail: "check: \(findings) findings, \(repaired) repaired"))
        }
        call.reply(.object([("report", report.json)]))
    }

    /// Sends the findings, and waits for a slow client. Called on the check's own thread, which
    /// holds no lock then.
    private func tell(
        _ found: FoundFindings, _ call: ControlCall, _ shouldStop: () -> Bool
    ) {
        for finding in found.take() {
            while call.backlogBytes > CheckRunner.maximumBacklog, !shouldStop() { usleep(1000) }
            call.reply(.object([("finding", finding.json)]), continues: true)
        }
    }

    /// Findings of the check's threads. These may hold locks of the volume, so they do not wait for
    /// the client.
    private final class FoundFindings: Sendable {
        private let findings = Mutex<[CheckFinding]>([])

        func add(_ finding: CheckFinding) { findings.withLock { $0.append(finding) } }

        func take() -> [CheckFinding] {
            findings.withLock { findings in
                defer { findings = [] }
                return findings
            }
        }
    }

    /// The present time, as part of a file's name.
    static func name() -> String {
        String(Timestamp.now().prefix(19).map { $0 == ":" ? "." : $0 }) + "Z"
    }
}

extension VolumeCheck {
    /// The name of a check that begins now.
    public static func nameOfNow() -> String { CheckRunner.name() }
}
