import Foundation
import Synchronization
import WardContainers
import WardFormat

/// What an app is entitled to, as Xcode's entitlements files say it: the class of its container,
/// its groups, its team.
public typealias Entitlements = WardContainers.Entitlements

/// Why a property list can't be taken for entitlements.
public typealias EntitlementsError = WardContainers.EntitlementsError

/// Why a container can't be made or removed.
public typealias ContainerError = WardContainers.ContainerError

extension Entitlements {
    /// Of an app whose container has this class (nil: the volume's default), and that shares these
    /// groups.
    public init(
        _ protectionClass: ProtectionClass?, groups: [String] = [], team: String? = nil
    ) throws(EntitlementsError) {
        try self.init(
            dataProtection: protectionClass?.fileProtectionName, groups: groups, team: team)
    }

    /// From an entitlements file of an Xcode project, XML or binary.
    public init(contentsOf url: URL) throws {
        try self.init(propertyList: [UInt8](Data(contentsOf: url)))
    }

    /// From the text of one.
    public init(propertyList text: String) throws(EntitlementsError) {
        try self.init(propertyList: Array(text.utf8))
    }
}

/// The container of an app, or of an extension, on a simulated device: what an installation makes
/// there.
///
/// ```swift
/// let app = try await device.makeContainer("org.example.diary", entitlements: entitlements)
/// try await app.run { try Diary().add("Monday: rain.") }       // Diary finds its files by FileManager
/// ```
public struct SimulatedContainer: Sendable {
    public let id: String
    /// Absolute.
    public let path: String
    /// The class that new files in it get where nothing else says, when it was made.
    public let protectionClass: ProtectionClass

    /// `path` as a URL.
    public var url: URL { URL(fileURLWithPath: path, isDirectory: true) }
    public var documents: URL { directory(ContainerLayout.documents) }
    public var applicationSupport: URL { directory(ContainerLayout.applicationSupport) }
    public var caches: URL { directory(ContainerLayout.caches) }

    /// What a program that is started is to have in its environment to run in this container.
    public var environment: [String: String] {
        Dictionary(
            uniqueKeysWithValues: ContainerContext.environment(root: path).map {
                ($0.name, $0.value)
            })
    }

    /// Runs `body` as this app: `NSHomeDirectory()`,
    /// `FileManager.url(for:in:appropriateFor:create:)`,
    /// `containerURL(forSecurityApplicationGroupIdentifier:)` and their like of the library
    /// `DataProtection` answer from this container, in the current task, those it starts as its
    /// children, and, as `enter()` has it, on queues, threads and in detached tasks, where no other
    /// container is entered meanwhile.
    public func run<Value>(
        isolation: isolated (any Actor)? = #isolation, _ body: () async throws -> Value
    ) async rethrows -> Value {
        let stay = enter()
        defer { stay.leave() }
        return try await ContainerContext.$assumedRoot.withValue(path) { try await body() }
    }

    /// Makes the whole process this app, on every thread, until the value that is returned is told
    /// to `leave()` or goes: for `setUp()` and `tearDown()`, and for code that works on queues of
    /// its own.
    ///
    /// A process is in one container at a time. Where several are entered, code that no `run`
    /// surrounds is in none of them: then, and as long as a device of this process exists and no
    /// container is entered, the user's directories are places where nothing can be written, and
    /// standard error says so. Tests that enter are to be `.serialized`.
    ///
    /// `UserDefaults` is Foundation's, and stays with the home directory that the process has:
    /// start a program with `environment` for it.
    public func enter() -> Stay { Stay(path) }

    /// A process in a container.
    public final class Stay: Sendable {
        private let path: String
        private let isOver = Atomic<Bool>(false)

        init(_ path: String) {
            self.path = path
            ContainerContext.enter(path)
        }

        /// Leaves it; a second time does nothing.
        public func leave() {
            if !isOver.exchange(true, ordering: .acquiringAndReleasing) {
                ContainerContext.leave(path)
            }
        }

        deinit { leave() }
    }

    private func directory(_ name: String) -> URL {
        url.appendingPathComponent(name, isDirectory: true)
    }
}

extension SimulatedDevice {
    /// Makes the container of an app or an extension, and those of its groups that are not there:
    /// what an installation does. In every state; for one that is there nothing of it is changed,
    /// as with an update.
    public func makeContainer(
        _ id: String, kind: ContainerKind = .application, entitlements: Entitlements? = nil
    ) async throws -> SimulatedContainer {
        let name = try ContainerID(id)
        guard kind != .group else {
            throw ContainerError(.occupied, id, "a group is made by the first app that names it")
        }
        let container = try await changeContainers {
            try $0.create(name, kind, entitlements).container
        }
        return SimulatedContainer(
            id: id, path: container.path,
            protectionClass: ProtectionClass(spelling: container.record.classAtCreation)
                ?? .completeUntilFirstUserAuthentication)
    }

    /// Removes a container with all that is in it, and the groups that nothing else names: what
    /// deleting an app does.
    public func removeContainer(_ id: String) async throws {
        let name = try ContainerID(id)
        try await changeContainers { _ = try $0.remove(name) }
    }
}

/// What a container is for: `application`, `extension`; a `group` is made by the first app that
/// names it.
public typealias ContainerKind = WardContainers.ContainerKind
