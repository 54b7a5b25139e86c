import Foundation
import Glibc
import Testing

/// Runs suites of this test program once more as the user `nobody`: mounts by fusermount3, files of
/// one owner, no rights of root.
package enum OrdinaryUserRun {
    /// `filter`: a regular expression as for `swift test --filter`. Returns the exit status and all
    /// output.
    package static func run(filter: String) throws -> (status: Int32, output: String) {
        // A copy: other users may have no access to the build directory.
        var template = Array("/tmp/ward-nobody-XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw POSIXError(.EIO) }
        let place = template.withUnsafeBufferPointer { String(cString: $0.baseAddress!) }
        defer { try? FileManager.default.removeItem(atPath: place) }
        chmod(place, 0o755)
        let own = try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")
        let built = (own as NSString).deletingLastPathComponent
        for (source, name) in [(own, "tests"), (built + "/ward", "ward")] {
            try Child.copyProgram(source, to: place + "/" + name)
        }
        let done = try Child.run(
            [
                "env", "-C", "/", "HOME=\(place)", "WARD_BINARY=\(place)/ward", "setpriv",
                "--reuid=65534", "--regid=65534", "--clear-groups", "--", place + "/tests",
                "--testing-library", "swift-testing", "--filter", filter,
            ], environment: ProcessInfo.processInfo.environment, seconds: 1200)
        return (done.status, done.everything)
    }
}

extension Trait where Self == ConditionTrait {
    /// For suites that say the same of every user, and that `OrdinaryUserRun` runs as `nobody`:
    /// root runs them with `WARD_TEST_ALL=1` alone.
    package static var forOrdinaryUser: Self {
        .enabled(if: User.usual.contains { $0.userID == geteuid() }, "it runs as nobody")
    }
}
