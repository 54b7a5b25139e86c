//     run-tracker DIRECTORY record                  records a run
//     run-tracker DIRECTORY list                    shows the history
//     run-tracker DIRECTORY units kilometers|miles
//
// `record` reads a line "LATITUDE LONGITUDE" from standard input for each point. DIRECTORY lies on
// a mounted ward volume. Lock it with `ward lock` while a run is recorded, or before `list`.
import DataProtection
import RunTracker

func fail(_ message: String) -> Never {
    FileHandle.standardError.write(Data("run-tracker: \(message)\n".utf8))
    exit(1)
}

let arguments = CommandLine.arguments.dropFirst()
guard let directory = arguments.first, let verb = arguments.dropFirst().first else {
    fail("usage: run-tracker DIRECTORY record|list|units")
}

do {
    let tracker = try RunTracker(home: URL(fileURLWithPath: directory))
    switch verb {
    case "record":
        try await tracker.start(at: Date())
        while let line = readLine() {
            let numbers = line.split(separator: " ").compactMap { Double($0) }
            guard numbers.count == 2 else { fail("not a point: \(line)") }
            try await tracker.record(
                Point(time: Date(), latitude: numbers[0], longitude: numbers[1]))
        }
        try await tracker.finish()
    case "list":
        try await tracker.importTracks()
        let unit = try await tracker.settings().unit
        for run in try await tracker.runs() {
            let length =
                unit == .miles
                ? String(format: "%.2f mi", run.meters / 1609.344)
                : String(format: "%.2f km", run.meters / 1000)
            print(run.start?.formatted(.iso8601) ?? "-", length, "\(run.points) points")
        }
    case "units":
        guard let unit = arguments.last.flatMap(Settings.Unit.init(rawValue:)) else {
            fail("units are kilometers or miles")
        }
        var settings = try await tracker.settings()
        settings.unit = unit
        try await tracker.save(settings)
    default: fail("unknown command \(verb)")
    }
} catch {
    // A locked file is not a broken file: the same command works after the unlock.
    if let locked = DataProtectionError(error) {
        fail("\(locked.localizedDescription) Unlock it and try again.")
    }
    fail("\(error)")
}
