import Foundation
import Synchronization
import WardContainers
import WardFormat

/// The entitlements of an app, as in Xcode's entitlements files: the class of its container, its
/// groups, its team.
public typealias Entitlements = WardContainers.Entitlements

/// The reason why a property list is not valid as entitlements.
public typealias EntitlementsError = WardContainers.EntitlementsError

/// The reason why a container can't be made or removed.
public typealias ContainerError = WardContainers.ContainerError

extension Entitlements {
    /// The entitlements of an app with a container of this class (nil: the volume's default) that
    /// shares these groups.
    public init(
        _ protectionClass: ProtectionClass?, groups: [String] = [], team: String? = nil
    ) throws(EntitlementsError) {
        try self.init(
            dataProtection: protectionClass?.fileProtectionName, groups: groups, team: team)
    }

    /// Reads an entitlements file of an Xcode project, XML or binary. Throws `EntitlementsError`,
    /// and the errors of reading the file.
    public init(contentsOf url: URL) throws {
        try self.init(propertyList: [UInt8](Data(contentsOf: url)))
    }

    /// Reads the text of an entitlements file.
    public init(propertyList text: String) throws(EntitlementsError) {
        try self.init(propertyList: Array(text.utf8))
    }
}

/// The container of an app, or of an extension, on a simulated device, as an installation makes it.
///
/// ```swift
/// let app = try await device.makeContainer("org.example.diary", entitlements: entitlements)
/// try await app.run { try Diary().add("Monday: rain.") }  // Diary finds its files by FileManager
/// ```
public struct SimulatedContainer: Sendable {
    /// The identifier of the app or extension.
    public let id: String
    /// The absolute path of the container.
    public let path: String
    /// The class of new files in the container where neither the caller nor a directory says
    /// another. The value is that of the container's creation.
    public let protectionClass: ProtectionClass

    /// `path` as a URL.
    public var url: URL { URL(fileURLWithPath: path, isDirectory: true) }
    /// The container's directory for documents.
    public var documents: URL { directory(ContainerLayout.documents) }
    /// The container's directory for application support files.
    public var applicationSupport: URL { directory(ContainerLayout.applicationSupport) }
    /// The container's directory for caches.
    public var caches: URL { directory(ContainerLayout.caches) }

    /// The environment variables for a program that should run in this container.
    public var environment: [String: String] {
        Dictionary(
            uniqueKeysWithValues: ContainerContext.environment(root: path).map {
                ($0.name, $0.value)
            })
    }

    /// Runs `body` as this app.
    ///
    /// The directories of the library `DataProtection` are then those of this container:
    /// `NSHomeDirectory()`, `FileManager.url(for:in:appropriateFor:create:)`,
    /// `containerURL(forSecurityApplicationGroupIdentifier:)` and others. This holds in the current
    /// task and its child tasks. On queues, threads and in detached tasks it holds as with
    /// `enter()`, while no other container is entered.
    public func run<Value>(
        isolation: isolated (any Actor)? = #isolation, _ body: () async throws -> Value
    ) async rethrows -> Value {
        let stay = enter()
        defer { stay.leave() }
        return try await ContainerContext.$assumedRoot.withValue(path) { try await body() }
    }

    /// Makes the whole process this app, on every thread, until `leave()` is called on the returned
    /// value or the value is released. It is for `setUp()` and `tearDown()`, and for code with its
    /// own queues.
    ///
    /// A process is in one container at a time. If several are entered, code outside of `run` is in
    /// no container. In that case the user's directories can't be written, and standard error says
    /// so. The same holds while this process has a device and has entered no container. Tests that
    /// use this must be `.serialized`.
    ///
    /// `UserDefaults` is Foundation's, and stays in the home directory of the process. To test it,
    /// start a program with `environment`.
    public func enter() -> Stay { Stay(path) }

    /// The time that the process spends in a container.
    public final class Stay: Sendable {
        private let path: String
        private let isOver = Atomic<Bool>(false)

        init(_ path: String) {
            self.path = path
            ContainerContext.enter(path)
        }

        /// Leaves the container. A second call does nothing.
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
    /// Makes the container of an app or an extension, and the missing containers of its groups, as
    /// an installation does. It works in every state of the device. An existing container does not
    /// change, as in an update.
    ///
    /// - Throws: `ContainerError`.
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

    /// Removes a container with its content, and the groups that no other container names, as
    /// deleting an app does.
    ///
    /// - Throws: `ContainerError`.
    public func removeContainer(_ id: String) async throws {
        let name = try ContainerID(id)
        try await changeContainers { _ = try $0.remove(name) }
    }
}

/// The kind of a container: `application` or `extension`. A `group` is made by the first app that
/// names it.
public typealias ContainerKind = WardContainers.ContainerKind
