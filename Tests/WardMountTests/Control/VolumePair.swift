import Foundation
import Testing

/// A volume and a copy of it, made like a restored backup. They are mounted side by side with one
/// state directory and one runtime directory, so the same keys open both.
struct VolumePair {
    let original: MountedVolume
    let copy: String
    let copyMountPoint: String

    /// `copyFirst`: the copy is mounted before the original. Both are unlocked, and have a file
    /// `A/f` of class A.
    init(as user: User, copyFirst: Bool) throws {
        original = try MountedVolume(as: user)
        copy = original.directory + "/home/copy"
        copyMountPoint = original.directory + "/home/mnt"
        try original.shell(
            #"mkdir "$MNT/A" && setfattr -n user.ward.class -v complete "$MNT/A" && echo secret >"$MNT/A/f""#
        )
        try original.unmount()
        try original.shell(
            """
            cp -a '\(original.volume)' '\(copy)'
            mkdir '\(copyMountPoint)'
            """)
        if copyFirst { try mountCopy() }
        try original.mount()
        if !copyFirst { try mountCopy() }
        try original.unlock()
        try ward("unlock", copyMountPoint, "--passcode-file", original.passcodeFile)
    }

    var places: [String] { [original.mountPoint, copyMountPoint] }

    func mountCopy() throws {
        try ward("mount", copy, copyMountPoint, "--manual-clock", "--grace", "10")
    }

    @discardableResult
    func ward(
        _ arguments: String..., sourceLocation: SourceLocation = #_sourceLocation
    ) throws -> String {
        let done = try Child.run(
            original.user.prefix + [TestEnvironment.shared.ward] + arguments,
            environment: original.environment)
        #expect(done.succeeded, "\(arguments): \(done.everything)", sourceLocation: sourceLocation)
        return done.output
    }

    /// Whether the file of class A can be read, for each of the two.
    func isOpen() throws -> [Bool] {
        try places.map { place in
            try Child.run(
                original.user.prefix + ["cat", place + "/A/f"], environment: original.environment
            ).succeeded
        }
    }

    /// The state that `ward status` reports, for each of the two.
    func states() throws -> [String] {
        try places.map { place in
            let text = try ward("status", "--json", place)
            let json = try JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any]
            #expect(json?["mountpoint"] as? String == place)
            return json?["state"] as? String ?? ""
        }
    }

    /// The process that serves the mount at `place`.
    func daemon(of place: String) throws -> pid_t {
        let text = try ward("status", "--json", place)
        let json = try JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any]
        return pid_t(try #require(json?["pid"] as? Int))
    }
}
