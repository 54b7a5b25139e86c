import WardConsole
import WardContainers
import WardControl
import WardFormat

/// Text and JSON for containers.
enum ContainerText {
    /// The letter A, B, C, D or CX for Apple's name of a class.
    static func letter(_ name: String) -> String {
        ProtectionClass(spelling: name)?.letter ?? "?"
    }

    /// "3 files, 12 KiB (2 of class A, 1 of class C)"
    static func usage(_ usage: ContainerUsage) -> String {
        let total = Text.count(usage.count, "file")
        let unread = usage.unreadable > 0 ? ", and what can't be looked at" : ""
        guard usage.count > 0 else { return total + unread }
        return "\(total), \(Text.size(bytes: usage.sizeBytes)) (\(classes(usage)))\(unread)"
    }

    private static func classes(_ usage: ContainerUsage) -> String {
        files(usage).map { "\(Text.grouped($0.files.count)) of class \($0.letter)" }
            .joined(separator: ", ")
    }

    /// The files of each class, in the order A, B, C, D, CX.
    static func files(
        _ usage: ContainerUsage
    ) -> [(letter: String, files: ContainerUsage.Files)] {
        ProtectionClass.allCases.compactMap { protectionClass in
            usage.byClass[protectionClass.fileProtectionName].map { (protectionClass.letter, $0) }
        }
    }

    /// Explains that a container's class differs from the entitlement's class.
    static func difference(_ wanted: String, _ container: VolumeContainers.Container) -> String {
        let source =
            container.record.entitlement == nil
            ? "the volume's default is class" : "the entitlement says class"
        let since =
            container.protectionClass == container.record.classAtCreation
            ? "it was made with" : "was set on it since"
        return "\(container.id): \(source) \(letter(wanted)) now, and the container has class "
            + "\(letter(container.protectionClass)), which \(since); what is in it stays as it is "
            + "until: \(conversion(wanted, container))"
    }

    /// The command that gives a container and all its files the class.
    static func conversion(_ wanted: String, _ container: VolumeContainers.Container) -> String {
        "ward class set \(letter(wanted)) \(Text.shellQuoted(container.path)) -R"
    }

    static func oddity(_ oddity: VolumeContainers.Oddity) -> String {
        "\(Text.printable(oddity.path)) is no container: \(oddity.reason)"
    }

    /// One line of `ward container list --json`.
    static func json(
        _ container: VolumeContainers.Container, _ usage: ContainerUsage?,
        _ listing: VolumeContainers.Listing
    ) -> JSONValue {
        let record = container.record
        let users = listing.users(of: record.id).map(\.id.text)
        return .object(present: [
            ("id", .string(record.id.text)), ("kind", .string(record.kind.rawValue)),
            ("path", .string(container.path)),
            ("classAtCreation", .string(letter(record.classAtCreation))),
            ("class", .string(letter(container.protectionClass))),
            ("entitlement", record.entitlement.map { .string(letter($0)) }),
            (
                "background",
                record.backgroundModes.isEmpty
                    ? nil : .array(record.backgroundModes.map { .string($0) })
            ),
            ("team", record.team.map { .string($0) }), ("created", .string(record.created)),
            (
                "groups",
                record.kind == .group ? nil : .array(record.groups.map { .string($0.text) })
            ),
            ("usedBy", record.kind == .group ? .array(users.map { .string($0) }) : nil),
            ("files", usage.map { .int(Int64($0.count)) }),
            ("sizeBytes", usage.map { .int(Int64($0.sizeBytes)) }),
            (
                "filesByClass",
                usage.map { usage in
                    .object(files(usage).map { ($0.letter, .int(Int64($0.files.count))) })
                }
            ),
        ])
    }

    static func json(_ oddity: VolumeContainers.Oddity) -> JSONValue {
        .object([
            ("oddity", .string(oddity.kind.rawValue)), ("path", .string(oddity.path)),
            ("reason", .string(oddity.reason)),
        ])
    }
}
