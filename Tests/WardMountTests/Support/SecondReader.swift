import Foundation
import Testing

/// `contrib/ward-reader`, the reader that shares no code with ward, copied to a place where the
/// volume's user can run it.
struct SecondReader {
    private let volume: MountedVolume
    private let directory: String

    /// The top directory of the checkout, with a slash.
    static let checkout = String(
        #filePath.dropLast("Tests/WardMountTests/Support/SecondReader.swift".count))

    init(for volume: MountedVolume) throws {
        self.volume = volume
        directory = volume.directory + "/reader"
        let packages = Self.checkout + ".build-cryptography"
        try #require(
            access(packages + "/cryptography/__init__.py", R_OK) == 0,
            "the Python package cryptography is not there: run `scripts/setup test`")
        mkdir(directory, 0o755)
        let copied = try Child.run(
            ["cp", "-r", packages, Self.checkout + "contrib/ward-reader", directory],
            environment: TestEnvironment.shared.variables)
        try #require(copied.succeeded, "\(copied.everything)")
    }

    /// Runs it on this volume as the volume's user, with the passcode unless `keys` says otherwise.
    func run(_ command: String, _ arguments: [String] = [], keys: [String]? = nil) throws
        -> Finished
    {
        var environment = volume.environment
        environment["PYTHONPATH"] = directory + "/.build-cryptography"
        return try Child.run(
            volume.user.prefix + [
                TestEnvironment.shared.python, directory + "/ward-reader/ward-reader", command,
                volume.volume,
            ] + arguments + (keys ?? ["--passcode-file", volume.passcodeFile]),
            environment: environment, seconds: 180)
    }

    /// Extracts everything into a new directory, and compares that with a manifest.
    func extractAndCompare(
        _ manifest: String, keys: [String]? = nil, sourceLocation: SourceLocation = #_sourceLocation
    ) throws {
        let target = volume.directory + "/home/extracted"
        let before = try backingTree()
        let extracted = try run("extract", [target], keys: keys)
        #expect(extracted.succeeded, "\(extracted.everything)", sourceLocation: sourceLocation)
        #expect(
            try backingTree() == before, "it changed the volume", sourceLocation: sourceLocation)
        // A copy has no marks (row Y8).
        try features(
            "compare", manifest, target, "--any-owner", "--no-marks",
            sourceLocation: sourceLocation)
        _ = try Child.run(["rm", "-rf", target], environment: volume.environment)
    }

    /// Expects that it lists exactly those directories as synchronised that the manifest calls
    /// marked.
    func expectMarks(
        _ manifest: String, sourceLocation: SourceLocation = #_sourceLocation
    ) throws {
        let listed = try run("list", ["--json"], keys: [])
        #expect(listed.succeeded, "\(listed.everything)", sourceLocation: sourceLocation)
        let list = volume.directory + "/home/listed"
        try Data(listed.output.utf8).write(to: URL(fileURLWithPath: list))
        try features("marks", manifest, list, sourceLocation: sourceLocation)
    }

    /// Every name in the backing directory, with its size, mode and times of change.
    private func backingTree() throws -> String {
        try Child.run(
            ["find", volume.volume, "-printf", "%P %s %m %T@ %C@\\n"],
            environment: volume.environment
        ).output
    }

    /// Runs `features.py` as the volume's user; the test fails if it fails.
    @discardableResult
    func features(
        _ arguments: String..., sourceLocation: SourceLocation = #_sourceLocation
    ) throws -> String {
        let environment = TestEnvironment.shared
        let done = try Child.run(
            volume.user.prefix + [environment.python, environment.script("features.py")]
                + arguments,
            environment: volume.environment, seconds: 180)
        #expect(
            done.succeeded, "\(arguments[0]): \(done.everything)", sourceLocation: sourceLocation)
        return done.output
    }

    /// Writes the content of the mount into a file for `compare`. Returns its path.
    func manifest(_ name: String) throws -> String {
        let path = volume.directory + "/home/" + name
        try Data(try features("manifest", volume.mountPoint).utf8).write(
            to: URL(fileURLWithPath: path))
        return path
    }
}
