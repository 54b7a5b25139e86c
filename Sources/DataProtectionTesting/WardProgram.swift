import CWardLinux
import Foundation
import WardSimulation

/// The program `ward` that serves simulated devices.
enum WardProgram {
    /// Finds the program. The first of these decides: `WARD_BINARY`, which must be valid; `ward`
    /// beside this program; `PATH`. SwiftPM builds `ward` beside the program for packages that
    /// depend on this library. Throws where the program is missing or this machine can't mount.
    static func find() throws(SimulatorError) -> String {
        try checkMachine()
        let environment = ProcessInfo.processInfo.environment
        if let named = environment["WARD_BINARY"], !named.isEmpty {
            guard isProgram(named) else {
                throw missing("WARD_BINARY names \(named), which is no program")
            }
            return named
        }
        let beside = places().map { $0 + "/ward" }
        let path = (environment["PATH"] ?? "").split(separator: ":").map { "\($0)/ward" }
        if let found = (beside + path).first(where: isProgram) { return found }
        throw missing("no program ward lies beside \(beside.joined(separator: ", ")) or in PATH")
    }

    /// Throws where this machine can't mount, so that a test reports the reason before it starts
    /// anything.
    private static func checkMachine() throws(SimulatorError) {
        guard access("/dev/fuse", F_OK) == 0 else {
            throw SimulatorError(
                "cannot simulate a device", why: "this machine has no /dev/fuse",
                hint: "modprobe fuse; in a container: run it with "
                    + "--device /dev/fuse --cap-add SYS_ADMIN", exitCode: 69)
        }
    }

    /// The directories of this program and, where it is another file, of the test bundle.
    private static func places() -> [String] {
        var places: [String] = []
        let own = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")
        for path in [own, CommandLine.arguments.first] {
            guard let path else { continue }
            let directory = (path as NSString).deletingLastPathComponent
            if !directory.isEmpty, !places.contains(directory) { places.append(directory) }
        }
        return places
    }

    private static func isProgram(_ path: String) -> Bool {
        guard let attributes = try? FileManager.default.attributesOfItem(atPath: path),
            attributes[.type] as? FileAttributeType == .typeRegular
                || attributes[.type] as? FileAttributeType == .typeSymbolicLink
        else { return false }
        return access(path, X_OK) == 0
    }

    private static func missing(_ why: String) -> SimulatorError {
        SimulatorError(
            "cannot simulate a device", why: why,
            hint: "swift build --product ward, then WARD_BINARY=.build/debug/ward swift test",
            exitCode: 69)
    }
}
