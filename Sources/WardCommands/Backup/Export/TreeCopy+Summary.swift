import WardConsole
import WardControl

extension TreeCopy {
    /// A one-line summary for users.
    var text: String {
        var text =
            Text.count(counts.files, "file") + " (" + Text.size(bytes: counts.bytes) + ") in "
            + Text.count(counts.directories, "directory")
        if counts.present > 0 { text += ", \(Text.grouped(counts.present)) there already" }
        if failed > 0 { text += ", \(Text.grouped(failed)) failed" }
        return text
    }

    func summary(_ place: String, isComplete: Bool) -> JSONValue {
        .object([
            ("path", .string(place)), ("files", .int(Int64(counts.files))),
            ("directories", .int(Int64(counts.directories))), ("bytes", .int(Int64(counts.bytes))),
            ("present", .int(Int64(counts.present))), ("failed", .int(Int64(failed))),
            ("complete", .bool(isComplete)),
        ])
    }
}
