import Foundation
import Testing

/// Containers of one volume, by the command `ward container`.
extension MountedVolume {
    static let dataProtection = "com.apple.developer.default-data-protection"
    static let applicationGroups = "com.apple.security.application-groups"

    /// Writes an entitlements file as Xcode does. Returns its path.
    func entitlements(
        _ name: String, _ fileClass: String?, groups: [String] = [], team: String? = nil,
        format: PropertyListSerialization.PropertyListFormat = .xml
    ) throws -> String {
        var list: [String: Any] = ["get-task-allow": true, "aps-environment": "development"]
        list[Self.dataProtection] = fileClass
        if !groups.isEmpty { list[Self.applicationGroups] = groups }
        if let team { list["application-identifier"] = team + ".org.example." + name }
        let path = directory + "/" + name + ".entitlements"
        try PropertyListSerialization.data(fromPropertyList: list, format: format, options: 0)
            .write(to: URL(fileURLWithPath: path))
        return path
    }

    /// Runs `ward container VERB MOUNTPOINT …`; the test fails if it fails.
    @discardableResult
    func container(
        _ verb: String, _ arguments: String..., sourceLocation: SourceLocation = #_sourceLocation
    ) throws -> Finished {
        let done = try run(verb, arguments)
        #expect(
            done.succeeded, "container \(verb) \(arguments): \(done.everything)",
            sourceLocation: sourceLocation)
        return done
    }

    /// Runs the same command, which must fail with this exit code and two lines of text. Returns
    /// the text.
    @discardableResult
    func refusal(
        _ status: Int32, _ verb: String, _ arguments: String...,
        sourceLocation: SourceLocation = #_sourceLocation
    ) throws -> String {
        let done = try run(verb, arguments)
        #expect(
            done.status == status && done.errors.hasPrefix("ward: error: ")
                && done.errors.contains("\nward: hint: "),
            "container \(verb) \(arguments): \(done.everything)", sourceLocation: sourceLocation)
        return done.errors
    }

    private func run(_ verb: String, _ arguments: [String]) throws -> Finished {
        try Child.run(
            user.prefix + [TestEnvironment.shared.ward, "container", verb, mountPoint] + arguments,
            environment: environment)
    }

    /// The result of `ward container list --json` by ID, or by path for an entry that is not a
    /// container.
    func listing(sourceLocation: SourceLocation = #_sourceLocation) throws -> [String: [String:
        Any]]
    {
        var found: [String: [String: Any]] = [:]
        let done = try container("list", "--json", sourceLocation: sourceLocation)
        for line in done.output.split(separator: "\n") {
            let entry = try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any]
            if let entry, let name = (entry["id"] ?? entry["path"]) as? String {
                found[name] = entry
            }
        }
        return found
    }

    /// The letters of the classes of files and directories, relative to the mount point.
    func letters(
        _ paths: String..., sourceLocation: SourceLocation = #_sourceLocation
    ) throws -> [String] {
        let done = try Child.run(
            user.prefix + [TestEnvironment.shared.ward, "class", "show"]
                + paths.map { mountPoint + "/" + $0 }, environment: environment)
        #expect(done.succeeded, "\(done.everything)", sourceLocation: sourceLocation)
        return done.output.split(separator: "\n").map { String($0.prefix { $0 != " " }) }
    }

    /// The content of a directory, sorted, hidden names included, links not followed.
    func tree(_ path: String) throws -> [String] {
        try shell("cd \"$MNT/\(path)\" && find . -mindepth 1 | LC_ALL=C sort")
            .split(separator: "\n").map { String($0.dropFirst(2)) }
    }
}

/// The directories of containers.
enum Place {
    static let applications = "Containers/Data/Application/"
    static let extensions = "Containers/Data/PluginKitPlugin/"
    static let groups = "Containers/Shared/AppGroup/"
    static let inside = [
        "Documents", "Library", "Library/Application Support", "Library/Caches",
        "Library/Preferences", "tmp",
    ]
    static let complete = "NSFileProtectionComplete"
    static let unlessOpen = "NSFileProtectionCompleteUnlessOpen"
    static let untilFirst = "NSFileProtectionCompleteUntilFirstUserAuthentication"
}
