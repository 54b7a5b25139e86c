import Glibc
import WardControl

/// The helper processes of a mount, and what watches over them.
///
/// Concurrency: constant after `init`.
final class MountHelpers: Sendable {
    let watchdog: WatchdogProcess?
    let sessionWatch: SessionWatchProcess
    private let processGuard: ProcessGuard

    init(
        _ watchdog: WatchdogProcess?, server: ControlServer, mountPoint: String,
        _ options: MountOptions, _ hub: EventHub, _ log: LogWriter, _ alarm: Alarm
    ) {
        self.watchdog = watchdog
        sessionWatch = SessionWatchProcess(
            server: server, mountPoint: mountPoint,
            // Root's volumes belong to the machine, not to a session.
            wishes: SessionWatchProcess.Wishes(
                screen: options.lock.followsScreen,
                logout: !options.lock.ignoresLogout && geteuid() != 0),
            hub: hub, alarm: alarm, report: { [log] in log.write(.warning, $0) })
        processGuard = ProcessGuard(
            [watchdog?.process, sessionWatch.keptProcess].compactMap { $0 }, alarm: alarm)
    }

    func stop() {
        processGuard.stop()
        watchdog?.stop()
        sessionWatch.stop()
    }
}
