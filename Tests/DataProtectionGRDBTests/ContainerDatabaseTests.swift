import DataProtection
import DataProtectionGRDB
import DataProtectionTesting
import Testing
import WardTestSupport

/// Containers on simulated devices, made from entitlements.
@Suite struct ContainerDatabaseTests {
    /// As Xcode writes it, for an app and its widget.
    private static let entitlements = """
        <?xml version="1.0" encoding="UTF-8"?>
        <!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" \
        "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
        <plist version="1.0">
        <dict>
            <key>com.apple.developer.default-data-protection</key>
            <string>NSFileProtectionComplete</string>
            <key>com.apple.security.application-groups</key>
            <array>
                <string>group.org.example.diary</string>
            </array>
        </dict>
        </plist>
        """

    /// The code of an app and of its widget; it does not know of ward.
    private struct Diary {
        let database: DatabaseQueue

        init() throws {
            let group = FileManager.default.containerURL(
                forSecurityApplicationGroupIdentifier: "group.org.example.diary")!
            try self.init(at: group)
        }

        init(at directory: URL) throws {
            database = try DatabaseQueue(path: directory.appendingPathComponent("diary.db").path)
        }

        func add(_ text: String) throws {
            try database.write { db in
                try db.execute(sql: "CREATE TABLE IF NOT EXISTS entry (text)")
                try db.execute(sql: "INSERT INTO entry VALUES (?)", arguments: [text])
            }
        }

        func entries() throws -> [String] {
            try database.read { db in try String.fetchAll(db, sql: "SELECT text FROM entry") }
        }
    }

    private let id = "org.example.diary"

    @Test(
        "with this entitlement, before first unlock, the widget cannot read the app's database",
        .simulatedDevice())
    func widgetBeforeFirstUnlock() async throws {
        let device = SimulatedDevice.current
        let entitlements = try Entitlements(propertyList: Self.entitlements)
        let app = try await device.makeContainer(id, entitlements: entitlements)
        let widget = try await device.makeContainer(
            id + ".widget", kind: .extension, entitlements: entitlements)
        try await app.run { try Diary().add("Monday: rain.") }
        #expect(try await widget.run { try Diary().entries() } == ["Monday: rain."])

        try await device.reboot()
        let launch = try await device.recording {
            await failure { try await widget.run { _ = try Diary().entries() } }
        }
        #expect(launch.value is DatabaseError, "\(String(describing: launch.value))")
        #expect(
            launch.denials.contains {
                $0.path == "/Containers/Shared/AppGroup/group.org.example.diary/diary.db"
                    && $0.protectionClass == .completeUntilFirstUserAuthentication
            }, "\(launch.denials)")
        await #expect(throws: UnmetExpectation.self) {
            try await device.expectNothingDeniedBeforeFirstUnlock {
                try await widget.run { _ = try Diary().entries() }
            }
        }

        // No entitlement governs the group, so its class is C: locked, but unlocked once, the
        // widget can open it.
        try await device.unlock()
        try await device.lock(.now)
        #expect(try await widget.run { try Diary().entries() } == ["Monday: rain."])
    }

    @Test(
        "the app's own database has the entitlement's class: locked, not even the app can read it",
        .simulatedDevice())
    func ownDatabase() async throws {
        let device = SimulatedDevice.current
        let app = try await device.makeContainer(
            id, entitlements: Entitlements(propertyList: Self.entitlements))
        #expect(app.protectionClass == .complete)
        try await app.run {
            try Diary(at: .applicationSupportDirectory).add("Monday: rain.")
        }
        let file = app.applicationSupport.appendingPathComponent("diary.db")
        let attributes = try FileManager.default.attributesOfItem(atPath: file.path)
        #expect(attributes[.protectionKey] as? FileProtectionType == .complete)
        try await device.lock(.now)
        let error = await app.run {
            failure { _ = try Data(contentsOf: .applicationSupportDirectory + "diary.db") }
        }
        #expect(
            error.flatMap { DataProtectionError($0) } == .locked(class: .complete, state: .locked))
        #expect(try await device.audit().files(of: .complete).count == 1)
    }

    @Test(
        "entitlements from a file and from values; containers update, and go with their groups",
        .simulatedDevice())
    func lifeOfAContainer() async throws {
        let device = SimulatedDevice.current
        let file = device.url.appendingPathComponent("diary.entitlements")
        try Data(Self.entitlements.utf8).write(to: file)
        let read = try Entitlements(contentsOf: file)
        #expect(read == (try Entitlements(.complete, groups: ["group.org.example.diary"])))
        #expect(throws: EntitlementsError.self) { try Entitlements(ProtectionClass.none) }

        let app = try await device.makeContainer(id, entitlements: read)
        let group = device.path + "/Containers/Shared/AppGroup/group.org.example.diary"
        #expect(app.path == device.path + "/Containers/Data/Application/" + id)
        for directory in [app.documents, app.caches, app.applicationSupport] {
            #expect(FileManager.default.fileExists(atPath: directory.path))
        }
        // An update changes nothing that exists.
        let updated = try await device.makeContainer(id, entitlements: Entitlements(nil))
        #expect(updated.protectionClass == .complete)
        #expect(FileManager.default.fileExists(atPath: group))
        _ = try await device.makeContainer(id, entitlements: read)
        await #expect(throws: ContainerError.self) {
            try await device.makeContainer(
                "org.example.stranger",
                entitlements: Entitlements(
                    nil, groups: ["group.org.example.diary"], team: "OTHER"))
        }
        await #expect(throws: (any Error).self) { try await device.makeContainer("../x") }
        await #expect(throws: ContainerError.self) {
            try await device.makeContainer("group.y", kind: .group)
        }
        try await device.removeContainer(id)
        #expect(!FileManager.default.fileExists(atPath: app.path))
        #expect(!FileManager.default.fileExists(atPath: group))
    }

    @Test(
        "several apps at once, each in its own container; programs by their environment",
        .simulatedDevice())
    func severalApps() async throws {
        let device = SimulatedDevice.current
        var containers: [SimulatedContainer] = []
        for number in 0..<4 {
            containers.append(try await device.makeContainer("org.example.app\(number)"))
        }
        try await withThrowingTaskGroup(of: Void.self) { group in
            for container in containers {
                group.addTask {
                    try await container.run {
                        for _ in 0..<20 {
                            #expect(NSHomeDirectory() == container.path)
                            await Task.yield()
                        }
                        try Data("x".utf8).write(to: URL.documentsDirectory + "f")
                    }
                }
            }
            try await group.waitForAll()
        }
        #expect(FileManager.default.containerURL(forSecurityApplicationGroupIdentifier: "x") == nil)
        for container in containers {
            let copied = try Child.run(
                ["sh", "-c", "cp \"$HOME/Documents/f\" \"$TMPDIR/g\""],
                environment: container.environment)
            #expect(copied.succeeded, "\(copied.everything)")
            #expect(FileManager.default.fileExists(atPath: container.path + "/tmp/g"))
        }
    }
}

private func + (directory: URL, name: String) -> URL { directory.appendingPathComponent(name) }
