import WardContainers
import WardFormat

/// The containers of a volume as an audit sees them: by the records of their roots, where these lie
/// in their places.
struct AuditedContainers {
    struct Container {
        var record: ContainerRecord
        /// Inside the volume.
        var path: String
    }

    /// Who runs in the background with files of a container, its own or a group's.
    struct Background {
        var app: String
        var modes: [String]
    }

    /// By the index of the root among the survey's directories.
    private(set) var roots: [Int: Container] = [:]

    init(_ survey: FileSurvey) {
        for (index, directory) in survey.directories.enumerated() {
            guard directory.path.hasPrefix("/" + ContainerLayout.top + "/"),
                let place = ContainerLayout.parse(containerPath: directory.path),
                place.volume == "/",
                let bytes = try? FileSurvey.attribute(
                    ContainerRecord.attribute, of: directory.rawPath + [0]),
                // What is damaged is for `ward container list` to say.
                let record = try? ContainerRecord(parsing: bytes), record.id == place.id,
                record.kind == place.kind
            else { continue }
            roots[index] = Container(record: record, path: directory.path)
        }
    }

    /// Who runs in the background with each container's files, by the index of its root.
    var background: [Int: Background] {
        var result: [Int: Background] = [:]
        let apps = roots.values.filter { !$0.record.backgroundModes.isEmpty }
            .sorted { $0.path < $1.path }
        for (index, container) in roots {
            let id = container.record.id
            let app =
                container.record.kind == .group
                ? apps.first { $0.record.groups.contains(id) }
                : apps.first { $0.path == container.path }
            if let app {
                result[index] = Background(
                    app: app.record.id.text, modes: app.record.backgroundModes)
            }
        }
        return result
    }
}
