import Foundation
import Testing

extension MountedVolume {
    /// Runs a shell script as this volume's user, `$MNT` being the mount point, and fails the test where it fails.
    @discardableResult
    func shell(
        _ script: String, seconds: Double = 120, sourceLocation: SourceLocation = #_sourceLocation
    ) throws -> String {
        var variables = environment
        variables["MNT"] = mountPoint
        variables["OUT"] = directory + "/home"
        let done = try Child.run(
            user.prefix + ["bash", "-euo", "pipefail", "-c", script], environment: variables,
            seconds: seconds)
        #expect(
            done.succeeded, "as \(user.rawValue): \(done.everything)",
            sourceLocation: sourceLocation)
        return done.output
    }

    /// A probe of this volume's user at the mount point.
    func probe() throws -> Probe { try Probe(as: user, base: mountPoint) }
}
