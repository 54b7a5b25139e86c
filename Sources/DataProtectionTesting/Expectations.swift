import WardFormat
import WardSimulation

/// An expectation about a program's files that was not met. It is thrown, so it fails a test in any
/// framework.
public struct UnmetExpectation: Error, Sendable, CustomStringConvertible {
    /// The expectation in words, such as "nothing is touched that can't be read".
    public var expectation: String
    /// The observations against the expectation, one line each.
    public var evidence: [String]

    public var description: String {
        "expected that \(expectation), but:\n"
            + evidence.map { "  - " + $0 }.joined(separator: "\n")
    }
}

extension SimulatedDevice {
    /// Expects that `launch`, run before first unlock, uses no file that it can't read then. It
    /// stands for the launch by a push, an alarm or a background fetch on a phone that was
    /// restarted in a pocket. The device stays before first unlock.
    ///
    /// - Throws: `UnmetExpectation`, and the errors of `launch`.
    @discardableResult
    public func expectNothingDeniedBeforeFirstUnlock<Value>(
        isolation: isolated (any Actor)? = #isolation, _ launch: () async throws -> Value
    ) async throws -> Value {
        try await reboot()
        return try await expectNothingDenied(isolation: isolation, launch)
    }

    /// Expects that no call of `body` is refused because of a class, in the device's present state.
    ///
    /// - Throws: `UnmetExpectation`, and the errors of `body`.
    @discardableResult
    public func expectNothingDenied<Value>(
        isolation: isolated (any Actor)? = #isolation, _ body: () async throws -> Value
    ) async throws -> Value {
        let name = try await state.rawValue
        let recording = try await outcome(isolation: isolation, of: body)
        // The refusals say more than the error that follows from them.
        var evidence = recording.denials.map(\.description)
        if case .failure(let error) = recording.value, !evidence.isEmpty {
            evidence.append("and then it threw \(error)")
        }
        try SimulatedDevice.require("nothing is touched that can't be read (\(name))", evidence)
        return try recording.value.get()
    }

    /// Expects that no file with content was deleted or replaced while it could not be read. An app
    /// that takes "locked" for "damaged" destroys its user's files in this way.
    ///
    /// - Throws: `UnmetExpectation`.
    public func expectNothingRemovedUnread() async throws {
        try SimulatedDevice.require(
            "no file is deleted or replaced while it can't be read",
            try await removedUnread.map(\.description))
    }

    /// Expects that a directory has files, and that every file in it and below it has this class.
    /// The path `directory` is inside the volume; "" means the whole volume.
    ///
    /// - Throws: `UnmetExpectation`.
    public func expectFiles(
        under directory: String = "", are protectionClass: ProtectionClass
    ) async throws {
        let audit = try await audit()
        let place = directory.isEmpty ? "the volume" : directory
        let expectation = "every file under \(place) is class \(protectionClass.name)"
        let others = audit.files(under: directory, notOf: protectionClass)
        let count = audit.files(under: directory).count
        try SimulatedDevice.require(
            expectation,
            count == 0
                ? ["there is no file"]
                : others.map { "\($0.path) is class \($0.protectionClass.name)" })
    }

    /// Expects that an audit finds nothing, or only findings of the allowed kinds. Findings are,
    /// for example, a database with side files of another class, a readable copy of a protected
    /// file, and a file removed unread. The device must not be locked.
    ///
    /// - Throws: `UnmetExpectation`.
    @discardableResult
    public func expectCleanAudit(
        allowing allowed: Set<Finding.Kind> = []
    ) async throws -> Audit {
        let audit = try await audit()
        let expectation = "an audit finds nothing"
        let findings = audit.findings.filter { !allowed.contains($0.kind) }
        try SimulatedDevice.require(
            expectation,
            audit.unread.map { "\($0) can't be read while \(audit.state)" }
                + findings.map(\.description))
        return audit
    }

    private static func require(_ expectation: String, _ evidence: [String]) throws {
        guard evidence.isEmpty else {
            throw UnmetExpectation(expectation: expectation, evidence: evidence)
        }
    }
}
