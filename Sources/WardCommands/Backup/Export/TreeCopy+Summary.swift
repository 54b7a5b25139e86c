import WardConsole
import WardControl

extension TreeCopy {
    /// A one-line summary for users.
    var text: String {
        var text =
            Text.count(files, "file") + " (" + Text.size(bytes: bytes) + ") in "
            + Text.count(directories, "directory")
        if present > 0 { text += ", \(Text.grouped(present)) there already" }
        if failed > 0 { text += ", \(Text.grouped(failed)) failed" }
        return text
    }

    func summary(_ place: String, isComplete: Bool) -> JSONValue {
        .object([
            ("path", .string(place)), ("files", .int(Int64(files))),
            ("directories", .int(Int64(directories))), ("bytes", .int(Int64(bytes))),
            ("present", .int(Int64(present))), ("failed", .int(Int64(failed))),
            ("complete", .bool(isComplete)),
        ])
    }
}
