import DataProtectionTesting
import Foundation
import Testing
import WardTestSupport

/// If a device can't be mounted, the error comes at once and says what to do.
@Suite(.serialized) struct ProgramTests {
    @Test("WARD_BINARY that is no program")
    func wrongProgram() async throws {
        try await Self.inChild("WARD_BINARY=/nonexistent/ward") { text in
            #expect(text.contains("cannot simulate a device"))
            #expect(text.contains("WARD_BINARY names /nonexistent/ward, which is no program"))
            #expect(text.contains("hint: swift build --product ward"))
        }
    }

    @Test("a program that is no ward")
    func anotherProgram() async throws {
        try await Self.inChild("WARD_BINARY=/bin/true") { text in
            #expect(text.contains("it ended without a word"))
        }
    }

    @Test("no /dev/fuse", .enabled(if: geteuid() == 0))
    func noFUSE() async throws {
        let prepare = """
            mount -t tmpfs -o mode=755 none /dev
            mknod -m 666 /dev/null c 1 3; mknod -m 666 /dev/zero c 1 5
            mknod -m 666 /dev/urandom c 1 9; mknod -m 666 /dev/random c 1 8
            """
        try await Self.inChild("X=", prepare: prepare) { text in
            #expect(text.contains("this machine has no /dev/fuse"))
            #expect(text.contains("--device /dev/fuse --cap-add SYS_ADMIN"))
        }
    }

    /// Runs `Maker` in another process, which must fail within seconds.
    private static func inChild(
        _ variable: String, prepare: String? = nil, _ body: (String) -> Void
    ) async throws {
        let own = try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")
        var words = ["env", variable, "\(Maker.variable)=1", own]
        words += ["--testing-library", "swift-testing", "--filter", "Maker"]
        if let prepare {
            words = ["unshare", "--mount", "sh", "-euc", prepare + "\nexec \"$@\"", "sh"] + words
        }
        // This limit only ends a process that hangs.
        let done = try Child.run(
            words, environment: ProcessInfo.processInfo.environment, seconds: 30)
        #expect(done.status != 0 && !done.timedOut, "\(done.everything)")
        body(done.everything)
    }
}

/// Only for `ProgramTests`, which run it in processes of their own.
@Suite struct Maker {
    static let variable = "WARD_TEST_MAKER"

    @Test(.enabled(if: ProcessInfo.processInfo.environment[variable] != nil))
    func makes() async throws {
        do {
            try await SimulatedDevice().remove()
        } catch {
            print("it says: \(error)")
            throw error
        }
    }
}
