import ArgumentParser
import WardDaemon

/// Internal command, started by the daemon: reads the probe's file before and after the daemon has
/// its pages dropped. A separate process, because it waits for the daemon.
struct KernelProbeCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "kernel-probe", abstract: "See whether the kernel drops pages.",
        shouldDisplay: false)

    @Option(help: "Where the volume is mounted.") var mountPoint: String

    func run() throws { try KernelProbe.run(mountPoint: mountPoint) }
}
