import Foundation
import Testing

/// Everything works for an ordinary user, too: mounts by fusermount3, files of one owner, no right that root has.
@Suite struct OrdinaryUserTests {
    @Test("the other suites, as nobody", .enabled(if: geteuid() == 0))
    func asNobody() throws {
        // A copy: where this was built others may have no way in.
        var template = Array("/tmp/ward-nobody-XXXXXX".utf8CString)
        try #require(mkdtemp(&template) != nil)
        let place = template.withUnsafeBufferPointer { String(cString: $0.baseAddress!) }
        defer { try? FileManager.default.removeItem(atPath: place) }
        chmod(place, 0o755)
        let own = try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")
        let built = (own as NSString).deletingLastPathComponent
        for (source, name) in [(own, "tests"), (built + "/ward", "ward")] {
            try FileManager.default.copyItem(atPath: source, toPath: place + "/" + name)
            chmod(place + "/" + name, 0o755)
        }
        let child = Process()
        child.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        child.arguments = [
            "-u", "WARD_BINARY", "HOME=\(place)", "setpriv", "--reuid=65534", "--regid=65534",
            "--clear-groups", "--", place + "/tests", "--testing-library", "swift-testing",
            "--filter",
            "DataProtectionTestingTests\\.(Lifecycle|Audit|Recipe|Trait|End)Tests",
        ]
        child.currentDirectoryURL = URL(fileURLWithPath: "/")
        let output = Pipe()
        child.standardOutput = output
        child.standardError = output
        try child.run()
        let text = String(
            decoding: try output.fileHandleForReading.readToEnd() ?? Data(), as: UTF8.self)
        child.waitUntilExit()
        #expect(child.terminationStatus == 0, "\(text)")
        // Some were there to run.
        #expect(text.contains("Suite AuditTests passed"))
    }
}
