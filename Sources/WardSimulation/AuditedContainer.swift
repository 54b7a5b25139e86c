import WardContainers
import WardFormat

/// The containers of a volume as an audit sees them: directories in the place of a container whose
/// record agrees with that place.
struct AuditedContainers {
    struct Container {
        var record: ContainerRecord
        /// Path inside the volume.
        var path: String
    }

    /// An app that runs in the background and uses files of a container: its own container or a
    /// group's.
    struct Background {
        var app: String
        var modes: [String]
    }

    /// Keyed by the index of the root among the survey's directories.
    private(set) var roots: [Int: Container] = [:]

    init(_ survey: FileSurvey) {
        for (index, directory) in survey.directories.enumerated() {
            guard directory.path.hasPrefix("/" + ContainerLayout.top + "/"),
                let place = ContainerLayout.parse(containerPath: directory.path),
                place.volume == "/",
                let bytes = try? FileSurvey.attribute(
                    ContainerRecord.attribute, of: directory.rawPath + [0]),
                // `ward container list` reports damaged records.
                let record = try? ContainerRecord(parsing: bytes), record.id == place.id,
                record.kind == place.kind
            else { continue }
            roots[index] = Container(record: record, path: directory.path)
        }
    }

    /// The app that runs in the background with each container's files, keyed by the index of the
    /// root.
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
