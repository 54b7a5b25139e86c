import DataProtectionLinux
import DataProtectionTesting
import Testing

/// A whole process that plays an app. Some rules hold for all threads of a process. They are tested
/// in processes of their own, because other tests make devices in this one.
@Suite struct ContainerProcessTests {
    /// The answers that an app's code gets, on every kind of thread.
    private struct Answers: Equatable {
        var support = FileManager.default.urls(
            for: .applicationSupportDirectory, in: .userDomainMask)[0].path
        var documents = URL.documentsDirectory.path
        var home = NSHomeDirectory()
        var group = FileManager.default.containerURL(
            forSecurityApplicationGroupIdentifier: "group.x")?.path
        var isAvailable = ProtectedData.shared.isAvailable

        static func onQueue() async -> Answers {
            await withCheckedContinuation { continuation in
                DispatchQueue(label: "io").async { continuation.resume(returning: Answers()) }
            }
        }

        static func onThread() async -> Answers {
            await withCheckedContinuation { continuation in
                Thread.detachNewThread { continuation.resume(returning: Answers()) }
            }
        }

        static func everywhere() async -> [Answers] {
            [Answers(), await onQueue(), await onThread(), await Task.detached { Answers() }.value]
        }

        var isNowhere: Bool {
            [support, documents, home].allSatisfy { $0.hasPrefix("/dev/null/") } && group == nil
        }
    }

    private static func makeApp(_ device: SimulatedDevice, _ id: String = "org.example.app")
        async throws -> SimulatedContainer
    {
        try await device.makeContainer(
            id, entitlements: Entitlements(.complete, groups: ["group.x"]))
    }

    @Test("run: queues, threads and detached tasks are in the container")
    func run() async {
        await #expect(processExitsWith: .success) {
            let device = try await SimulatedDevice()
            let app = try await Self.makeApp(device)
            await app.run {
                for answers in await Answers.everywhere() {
                    #expect(answers.support == app.path + "/Library/Application Support")
                    #expect(answers.documents == app.path + "/Documents")
                    #expect(answers.home == app.path)
                    #expect(answers.group?.hasSuffix("/group.x") == true)
                    #expect(answers.isAvailable)
                }
                let isWritten: Bool = await withCheckedContinuation { continuation in
                    DispatchQueue(label: "io").async {
                        let file = URL.documentsDirectory.appendingPathComponent("from a queue")
                        continuation.resume(
                            returning: (try? Data("x".utf8).write(to: file)) != nil)
                    }
                }
                #expect(isWritten)
            }
            let files = try await device.audit().files
            #expect(files.map(\.path).filter { $0.hasSuffix("/Documents/from a queue") }.count == 1)
            #expect(files.allSatisfy { $0.protectionClass == .complete })
            try await device.remove()
        }
    }

    @Test("enter: the whole process is in the container until it leaves")
    func enter() async {
        await #expect(processExitsWith: .success) {
            let device = try await SimulatedDevice()
            let app = try await Self.makeApp(device)
            let stay = app.enter()
            #expect(await Answers.everywhere().allSatisfy { $0.home == app.path })
            // Another app in the same process: code that no task puts into a container gets no
            // home.
            let other = try await Self.makeApp(device, "org.example.other")
            await other.run {
                #expect(NSHomeDirectory() == other.path)
                #expect(await Answers.onQueue().isNowhere)
            }
            #expect(await Answers.onQueue().home == app.path)
            stay.leave()
            stay.leave()
            #expect(await Answers.everywhere().allSatisfy(\.isNowhere))
            do {
                let inner = app.enter()
                #expect(NSHomeDirectory() == app.path)
                _ = inner
            }
            #expect(Answers().isNowhere, "it ends with its last reference")
            try await device.remove()
        }
    }

    @Test("beside a device, outside of a container, nothing can be written in anybody's home")
    func outside() async {
        await #expect(processExitsWith: .success) {
            let real = Answers()
            #expect(!real.isNowhere)
            let device = try await SimulatedDevice()
            #expect(Answers().isNowhere)
            let there = FileManager.default.urls(
                for: .applicationSupportDirectory, in: .userDomainMask)[0]
            #expect(throws: (any Error).self) {
                try FileManager.default.createDirectory(
                    at: there, withIntermediateDirectories: true)
            }
            #expect(throws: (any Error).self) {
                try Data("x".utf8).write(to: URL.documentsDirectory.appendingPathComponent("f"))
            }
            #expect(throws: CocoaError.self) {
                try FileManager.default.url(
                    for: .documentDirectory, in: .userDomainMask, appropriateFor: nil, create: true)
            }
            // Temporary files are allowed without a home.
            let temporary = FileManager.default.temporaryDirectory.path
            #expect(!temporary.hasPrefix("/dev/null") && NSTemporaryDirectory().hasPrefix("/"))
            // A home that the program chose is allowed.
            setenv("CFFIXED_USER_HOME", device.path, 1)
            #expect(NSHomeDirectory() == device.path)
            unsetenv("CFFIXED_USER_HOME")
            #expect(Answers().isNowhere)
            try await device.remove()
            #expect(Answers() == real)
            // A device that was not removed goes with its last reference.
            var forgotten: SimulatedDevice? = try await SimulatedDevice()
            #expect(Answers().isNowhere)
            _ = forgotten
            forgotten = nil
            #expect(Answers() == real)
        }
    }
}
