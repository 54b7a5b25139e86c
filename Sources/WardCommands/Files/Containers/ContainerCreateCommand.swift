import ArgumentParser
import WardConsole
import WardContainers
import WardControl

struct ContainerCreateCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "create", abstract: "Make the container of an app, and those of its groups.",
        discussion: """
            --entitlements is the property list that Xcode writes, XML or binary: \
            com.apple.developer.default-data-protection gives the container its class, \
            com.apple.security.application-groups names groups, whose containers are made where they \
            are not there. Without an entitlement the class is the volume's default; groups always \
            have that. A group can be shared by apps of one team only.

            For a container that is there nothing of it is changed: an update of the app. Where its \
            entitlement is another one now, ward says so, with the command that converts the files. \
            Works in every lock state.

            --background names the modes of the app's Info.plist (UIBackgroundModes), which no \
            entitlement says; ward audit finds class A files that such an app could not read. Given \
            again they replace those of before; --no-background takes them away.

            Examples:
              ward container create ~/papers org.example.diary --entitlements Diary.entitlements
              ward container create ~/papers org.example.radio --background audio --background fetch
              ward container create ~/papers org.example.diary.widget --extension \
            --entitlements Widget.entitlements
            """)

    @OptionGroup var target: ContainerTarget
    @Option(help: "The app's entitlements.", completion: .file()) var entitlements: String?
    @Flag(name: .customLong("extension"), help: "For an extension of an app.")
    var isExtension = false
    @Option(help: "The app runs in the background: a mode of its Info.plist; may be repeated.")
    var background: [String] = []
    @Flag(help: "The app runs in front alone.") var noBackground = false
    @OptionGroup var options: ReportOptions

    private static let what = "cannot make the container"

    func validate() throws {
        if noBackground, !background.isEmpty {
            throw ValidationError("--background and --no-background contradict each other")
        }
        if let odd = background.first(where: { !ContainerRecord.isBackgroundMode($0) }) {
            throw ValidationError(
                "--background '\(odd.prefix(80))' is no mode: letters and hyphens, as in audio, "
                    + "fetch, processing, bluetooth-central")
        }
    }

    func run() throws {
        let console = options.console
        let id = try target.id(ContainerCreateCommand.what)
        let containers = try target.containers(ContainerCreateCommand.what)
        var read: Entitlements?
        if let entitlements { read = try EntitlementsFile.read(entitlements) }
        let creation: VolumeContainers.Creation
        do throws(ContainerError) {
            creation = try containers.create(
                id, isExtension ? .extension : .application, read,
                backgroundModes: noBackground ? [] : background.isEmpty ? nil : background)
        } catch {
            throw ContainerTarget.failure(
                ContainerCreateCommand.what, error, in: containers.root)
        }
        report(creation, containers, console)
    }

    private func report(
        _ creation: VolumeContainers.Creation, _ containers: VolumeContainers, _ console: Console
    ) {
        let container = creation.container
        if console.isJSON {
            console.json(json(creation))
        } else if creation.isNew {
            let letter = ContainerText.letter(container.protectionClass)
            console.confirm(
                "\(container.id): \(container.kind.rawValue) of class \(letter), "
                    + Text.printable(container.path))
        } else {
            console.confirm("\(container.id): is there, nothing in it was changed")
        }
        for group in creation.madeGroups {
            console.confirm(
                "\(group): group container made, "
                    + Text.printable(containers.root + "/" + ContainerLayout.path(.group, group)))
        }
        if let wanted = creation.differingClass {
            console.note(ContainerText.difference(wanted, container))
        }
        for group in creation.droppedGroups {
            console.note(
                "\(group): not named any more; its container stays (ward container show "
                    + "\(Text.shellQuoted(containers.root)) \(group))")
        }
    }

    private func json(_ creation: VolumeContainers.Creation) -> JSONValue {
        let container = creation.container
        return .object(present: [
            ("id", .string(container.id.text)), ("kind", .string(container.kind.rawValue)),
            ("path", .string(container.path)), ("new", .bool(creation.isNew)),
            (
                "classAtCreation",
                .string(ContainerText.letter(container.record.classAtCreation))
            ),
            ("class", .string(ContainerText.letter(container.protectionClass))),
            (
                "entitlement",
                container.record.entitlement.map { .string(ContainerText.letter($0)) }
            ),
            ("groups", .array(container.record.groups.map { .string($0.text) })),
            ("madeGroups", .array(creation.madeGroups.map { .string($0.text) })),
            ("droppedGroups", .array(creation.droppedGroups.map { .string($0.text) })),
            (
                "differingClass", creation.differingClass.map { .string(ContainerText.letter($0)) }
            ),
            (
                "conversion",
                creation.differingClass.map { .string(ContainerText.conversion($0, container)) }
            ),
        ])
    }
}
