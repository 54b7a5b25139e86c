import DataProtection
import Testing
import WardTestSupport

/// Paths of the package and of its built products.
enum Repository {
    static let root = String(#filePath.dropLast("/Tests/DataProtectionTests/".count + fileName))
    private static let fileName = "OutsidePackageTests.swift".count

    /// The directory of the built products.
    static let products = URL(fileURLWithPath: TestEnvironment.builtProgram ?? "")
        .deletingLastPathComponent().path

    /// The environment of a compiler: it needs its own PATH and HOME, and must not notice that it
    /// runs inside a test.
    static var toolEnvironment: [String: String] {
        let environment = ProcessInfo.processInfo.environment
        return environment.filter { ["PATH", "HOME", "TMPDIR", "LANG"].contains($0.key) }
    }
}

extension DataProtectionSuite {
    /// A package outside of this one depends on it by path and imports only `DataProtection`, and
    /// the simulator in its tests.
    @Suite struct OutsidePackageTests {
        /// `make outside` builds it beside this package's products: building it alone would take as
        /// long as all of them.
        @Test("its tests pass on a volume, unlocked and locked, and on simulated devices")
        func outsidePackage() throws {
            let built = Repository.products + "/NotesPackageTests.xctest"
            try #require(access(built, X_OK) == 0, "\(built) is not there: make outside")
            try run(built)
        }

        /// Runs the built tests twice, on one volume: unlocked and locked.
        private func run(_ tests: String) throws {
            let volume = try MountedVolume.mine()
            for state in [LockState.unlocked, .locked] {
                try volume.enter(state)
                let done = try Child.run(
                    [tests, "--testing-library", "swift-testing"],
                    environment: volume.environment.merging(["CFFIXED_USER_HOME": volume.mountPoint]
                    ) { $1 })
                #expect(done.succeeded, "\(state): \(done.everything)")
                #expect(
                    done.output.contains(state == .locked ? "notes: locked" : "notes: unlocked"),
                    "\(done.everything)")
                #expect(done.output.contains("notes: on a device"), "\(done.everything)")
            }
            #expect(try volume.names(in: "Documents/Notes") == ["first"])
        }
    }

    /// The effect of a file's imports (docs/dataprotection-api.md).
    @Suite struct ImportTests {
        @Test(
            "a file that imports Foundation as well is not compiled; scoped imports are",
            arguments: [
                ("import DataProtection", true),
                ("import DataProtection\nimport Testing", true),
                ("import DataProtection\nimport struct Foundation.UUID", true),
                ("import DataProtection\nimport class XCTest.XCTestCase", true),
                ("import DataProtectionXCTest", true),
                ("import DataProtection\nimport DataProtectionXCTest\nimport Testing", true),
                ("import DataProtectionXCTest\nimport Foundation", false),
                ("import DataProtectionXCTest\nimport XCTest", false),
                ("import DataProtection\nimport Foundation", false),
                ("import DataProtection\nimport FoundationEssentials", false),
                ("import DataProtection\nimport XCTest", false),
            ])
        func imports(_ imports: String, compiles: Bool) throws {
            let done = try compile(
                """
                \(imports)
                func write(_ data: Data, to url: URL) throws {
                    try data.write(to: url, options: .completeFileProtection)
                    _ = try url.resourceValues(forKeys: [.fileProtectionKey]).fileProtection
                }
                """)
            #expect(done.succeeded == compiles, "\(done.everything)")
            if !compiles {
                #expect(done.everything.contains("ambiguous use of 'write(to:options:)'"))
                #expect(done.everything.contains("candidate in module 'DataProtectionLinux'"))
            }
        }

        @Test(
            "a subclass of FileManager can't override the library's calls; a protocol of one's own can"
        )
        func mocks() throws {
            let call =
                "createFile(atPath path: String, contents data: Data?, "
                + "attributes: [FileAttributeKey: Any]?) -> Bool"
            let subclass = try compile(
                """
                import DataProtection
                class Fake: FileManager, @unchecked Sendable {
                    override func \(call) { true }
                }
                """)
            #expect(!subclass.succeeded)
            #expect(subclass.everything.contains("cannot be overridden"))
            let conformance = try compile(
                """
                import DataProtection
                protocol Files { func \(call) }
                extension FileManager: Files {}
                struct Fake: Files { func \(call) { true } }
                """)
            #expect(conformance.succeeded, "\(conformance.everything)")
        }

        private func compile(_ source: String) throws -> Finished {
            let place = try TestEnvironment.shared.makeDirectory("imports")
            defer { try? FileManager.default.removeItem(atPath: place) }
            try source.write(
                toFile: place + "/file.swift", atomically: false, encoding: .utf8)
            let maps = [
                Repository.root + "/Sources/CWardLinux/include/module.modulemap",
                Repository.products
                    + "/../../checkouts/swift-system/Sources/CSystem/include/module.modulemap",
            ]
            return try Child.run(
                [
                    "swiftc", "-typecheck", "-swift-version", "6", "-I",
                    Repository.products + "/Modules", place + "/file.swift",
                ] + maps.flatMap { ["-Xcc", "-fmodule-map-file=" + $0] },
                environment: Repository.toolEnvironment, seconds: 300)
        }
    }
}
