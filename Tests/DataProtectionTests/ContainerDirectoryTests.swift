import DataProtection
import Testing
import WardContainers
import WardTestSupport

extension DataProtectionSuite {
    /// The directories that the library gives a program that runs in a container.
    @Suite(.forOrdinaryUser) struct ContainerDirectoryTests {
        private static let app = "org.example.diary"

        /// A volume with an app that shares a group, and another app that shares another group.
        private func makeVolume() throws -> (MountedVolume, root: String) {
            let volume = try MountedVolume.mine()
            for (id, group) in [(Self.app, "group.mine"), ("org.example.other", "group.other")] {
                let entitlements = volume.directory + "/\(id).entitlements"
                let list: [String: Any] = [
                    "com.apple.developer.default-data-protection": "NSFileProtectionComplete",
                    "com.apple.security.application-groups": [group],
                ]
                try PropertyListSerialization.data(fromPropertyList: list, format: .xml, options: 0)
                    .write(to: URL(fileURLWithPath: entitlements), options: [])
                let done = try volume.ward(
                    "container", "create", volume.mountPoint, id, "--entitlements", entitlements)
                try #require(done.succeeded, "\(done.everything)")
            }
            return (volume, volume.mountPoint + "/Containers/Data/Application/" + Self.app)
        }

        @Test("directories, home, temporary files and groups are the container's")
        func directories() async throws {
            let (volume, root) = try makeVolume()
            defer { withExtendedLifetime(volume) {} }
            ContainerContext.$assumedRoot.withValue(root) { ContainerAnswers.check(root) }
            ContainerContext.$assumedRoot.withValue(root + "/") { ContainerAnswers.check(root) }
            #expect(NSHomeDirectory() != root)
            #expect(!NSTemporaryDirectory().hasPrefix(root))
            #expect(
                FileManager.default.containerURL(
                    forSecurityApplicationGroupIdentifier: "group.mine") == nil)
            // The same calls outside of a container, in a process that has no simulated device
            // either.
            await #expect(processExitsWith: .success) { Self.checkOutside() }
        }

        private static func checkOutside() {
            #expect(NSHomeDirectory() == Foundation::NSHomeDirectory())
            #expect(NSTemporaryDirectory() == Foundation::NSTemporaryDirectory())
            let manager = FileManager.default
            #expect(manager.homeDirectoryForCurrentUser.path == Foundation::NSHomeDirectory())
            #expect(manager.temporaryDirectory.path + "/" == Foundation::NSTemporaryDirectory())
            for directory in [
                FileManager.SearchPathDirectory.documentDirectory, .applicationSupportDirectory,
                .cachesDirectory, .downloadsDirectory,
            ] {
                let own = Foundation::NSSearchPathForDirectoriesInDomains(
                    directory, .userDomainMask, true)
                #expect(
                    manager.urls(for: directory, in: .userDomainMask).map(\.path) == own
                        && NSSearchPathForDirectoriesInDomains(directory, .userDomainMask, true)
                            == own
                )
            }
            // One directory for each call: Foundation's own, or the library's where Foundation has
            // none on Linux.
            for url in [
                URL.documentsDirectory, .libraryDirectory, .applicationSupportDirectory,
                .cachesDirectory, .homeDirectory, .temporaryDirectory,
            ] { #expect(url.path.hasPrefix("/") && !url.path.hasPrefix("/dev/null")) }
        }

        @Test("url(for:in:appropriateFor:create:) makes what is missing, in the container's class")
        func creating() throws {
            let (volume, root) = try makeVolume()
            let manager = FileManager.default
            try ContainerContext.$assumedRoot.withValue(root) {
                try manager.removeItem(atPath: root + "/Library/Caches")
                let caches = try manager.url(
                    for: .cachesDirectory, in: .userDomainMask, appropriateFor: nil, create: false)
                #expect(!manager.fileExists(atPath: caches.path))
                #expect(
                    try manager.url(
                        for: .cachesDirectory, in: .userDomainMask, appropriateFor: nil,
                        create: true)
                        == caches)
                #expect(manager.fileExists(atPath: caches.path))
                try Data("x".utf8).write(to: caches.appendingPathComponent("f"))
            }
            let place = "Containers/Data/Application/\(Self.app)/Library/Caches"
            #expect(try volume.protection(place + "/f") == .complete)

            // After the container was removed no directory of another class takes its place.
            let removed = try volume.ward(
                "container", "remove", volume.mountPoint, Self.app, "--yes")
            #expect(removed.succeeded, "\(removed.everything)")
            let error = #expect(throws: CocoaError.self) {
                try ContainerContext.$assumedRoot.withValue(root) {
                    _ = try manager.url(
                        for: .cachesDirectory, in: .userDomainMask, appropriateFor: nil,
                        create: true)
                }
            }
            #expect(error?.code == .fileNoSuchFile)
            #expect(!manager.fileExists(atPath: root))
        }

        @Test("a group that is not in the entitlements, and a record that is none, give nil")
        func foreignGroups() throws {
            let (volume, root) = try makeVolume()
            func group(_ name: String) -> URL? {
                FileManager.default.containerURL(forSecurityApplicationGroupIdentifier: name)
            }
            ContainerContext.$assumedRoot.withValue(root) {
                #expect(group("group.mine") != nil)
                for name in ["group.other", "", "..", "../../Data", "group.mine/..", "group.none"] {
                    #expect(group(name) == nil, "\(name)")
                }
            }
            // A directory that is not a container becomes the home, and has no groups.
            ContainerContext.$assumedRoot.withValue(volume.mountPoint) {
                #expect(NSHomeDirectory() == volume.mountPoint)
                #expect(group("group.mine") == nil)
            }
        }

        @Test("ProtectedData.shared is of the container's volume")
        func protectedData() throws {
            let (volume, root) = try makeVolume()
            try ContainerContext.$assumedRoot.withValue(root) {
                #expect(ProtectedData.shared.isAvailable)
                try volume.lockNow()
                #expect(ProtectedData.shared.snapshot?.state == .locked)
            }
        }

        @Test(
            "a program started by ward container run, with --sandbox and without, gets the same answers"
        )
        func program() throws {
            let (volume, root) = try makeVolume()
            let own = try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")
            for sandbox in [[], ["--sandbox"]] {
                var environment = volume.environment
                environment[ContainerAnswers.variable] = root
                let done = try Child.run(
                    [TestEnvironment.shared.ward, "container", "run", volume.mountPoint, Self.app]
                        + sandbox + [
                            "--", own, "--testing-library", "swift-testing", "--filter",
                            "DataProtectionTests.ContainerProbe",
                        ], environment: environment, seconds: 120)
                #expect(done.succeeded, "\(done.everything)")
                #expect(
                    done.everything.contains("Suite ContainerProbe passed"), "\(done.everything)")
                #expect(
                    try volume.protection("Containers/Data/Application/\(Self.app)/tmp/probe")
                        == .complete)
                try FileManager.default.removeItem(atPath: root + "/tmp/probe")
            }
        }
    }
}

/// Runs in a container, started by `ContainerDirectoryTests.program`.
@Suite(.enabled(if: ContainerAnswers.expectedRoot != nil)) struct ContainerProbe {
    @Test func answers() throws {
        let root = try #require(ContainerAnswers.expectedRoot)
        ContainerAnswers.check(root)
        // Foundation's own answers, from the environment variables, are the same.
        #expect(Foundation::NSHomeDirectory() == root)
        #expect(Foundation::NSTemporaryDirectory() == root + "/tmp/")
        // The daemon tells the state in a sandbox, too.
        #expect(ProtectedData.shared.snapshot?.state == .unlocked)
        #expect(ProtectedData.shared.isAvailable(for: .complete))
        try Data("x".utf8).write(
            to: FileManager.default.temporaryDirectory.appendingPathComponent("probe"),
            options: .completeFileProtection)
    }
}

/// The answers that the library must give in the app's container.
enum ContainerAnswers {
    static let variable = "WARD_TESTS_CONTAINER"
    static let expectedRoot = ProcessInfo.processInfo.environment[variable]

    static func check(_ root: String, sourceLocation: SourceLocation = #_sourceLocation) {
        let manager = FileManager.default
        func same(_ url: URL?, _ name: String) {
            let path = name.isEmpty ? root : root + "/" + name
            #expect(url?.path == path, sourceLocation: sourceLocation)
            #expect(url?.hasDirectoryPath == true, "\(name)", sourceLocation: sourceLocation)
        }
        for (directory, name) in [
            (FileManager.SearchPathDirectory.documentDirectory, "Documents"),
            (.libraryDirectory, "Library"), (.cachesDirectory, "Library/Caches"),
            (.applicationSupportDirectory, "Library/Application Support"),
            (.downloadsDirectory, "Downloads"),
        ] {
            for mask in [FileManager.SearchPathDomainMask.userDomainMask, .allDomainsMask] {
                same(manager.urls(for: directory, in: mask).first, name)
            }
            same(
                try? manager.url(
                    for: directory, in: .userDomainMask, appropriateFor: nil, create: false), name)
            #expect(
                NSSearchPathForDirectoriesInDomains(directory, .userDomainMask, true)
                    == [root + "/" + name], sourceLocation: sourceLocation)
            #expect(
                NSSearchPathForDirectoriesInDomains(directory, .userDomainMask, false)
                    == ["~/" + name], sourceLocation: sourceLocation)
        }
        #expect(NSHomeDirectory() == root, sourceLocation: sourceLocation)
        #expect(NSTemporaryDirectory() == root + "/tmp/", sourceLocation: sourceLocation)
        same(manager.homeDirectoryForCurrentUser, "")
        same(manager.temporaryDirectory, "tmp")
        same(.homeDirectory, "")
        same(.temporaryDirectory, "tmp")
        same(.documentsDirectory, "Documents")
        same(.libraryDirectory, "Library")
        same(.cachesDirectory, "Library/Caches")
        same(.applicationSupportDirectory, "Library/Application Support")
        let group = manager.containerURL(forSecurityApplicationGroupIdentifier: "group.mine")
        let groups = root.dropLast("Data/Application/org.example.diary".count) + "Shared/AppGroup/"
        #expect(group?.path == groups + "group.mine", sourceLocation: sourceLocation)
    }
}
