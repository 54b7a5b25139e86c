/// A backup program whose lists differ from plain paths.
package enum BackupTool: String, CaseIterable, Sendable {
    case restic, rclone, rsync, tar, borg
}

/// Writes a volume's paths in the list syntax of a backup program. The syntax was tried with each
/// program (`BackupToolTests`): restic 0.14, rclone 1.60, rsync 3.2, GNU tar 1.34, Borg 1.2.
package struct BackupList {
    /// Nil: plain paths.
    package var tool: BackupTool?
    /// True: the list names the paths to leave out. False: the paths to take.
    package var isExcludes = false
    package var isAbsolute = false
    package var separator = UInt8(ascii: "\n")
    /// The volume's directory.
    let root: [UInt8]

    package init(root: String) { self.root = Array(root.utf8) }

    /// Whether the program can read this list with zero bytes between the paths.
    package static func takesZeroBytes(_ tool: BackupTool?, isExcludes: Bool) -> Bool {
        switch tool {
        case nil, .rsync: true
        case .restic, .tar, .borg: !isExcludes
        case .rclone: false
        }
    }

    /// Appends the lines of one directory. Returns the lines that contain the separator: the list
    /// can't hold them.
    package func append(_ directory: BackupDirectory, to out: inout [UInt8]) -> [[UInt8]] {
        var unwritable: [[UInt8]] = []
        if directory.path.isEmpty, !isExcludes, tool == .tar || tool == .borg {
            // The volume's directory itself, for its mode and attributes.
            append(tool == .borg ? root : Array("./".utf8), to: &out, &unwritable)
        }
        for entry in directory.entries where (entry.exclusion != nil) == isExcludes {
            for line in lines(directory.path(of: entry), entry.kind) {
                append(line, to: &out, &unwritable)
            }
        }
        return unwritable
    }

    private func append(
        _ line: [UInt8], to out: inout [UInt8], _ unwritable: inout [[UInt8]]
    ) {
        if line.contains(separator) {
            unwritable.append(line)
        } else {
            out += line
            out.append(separator)
        }
    }

    private func lines(_ path: [UInt8], _ kind: BackupEntry.Kind) -> [[UInt8]] {
        isExcludes ? excludes(path, kind) : files(path, kind)
    }

    private func files(_ path: [UInt8], _ kind: BackupEntry.Kind) -> [[UInt8]] {
        switch tool {
        case nil: return [isAbsolute ? absolute(path) : relative(path)]
        case .rsync, .tar: return [relative(path)]
        case .borg: return [absolute(path)]
        case .restic:
            // restic takes a named directory with its whole content. For a named file it takes the
            // directories above by itself.
            return kind == .directory ? [] : [absolute(path)]
        case .rclone:
            // Patterns, because rclone's file lists can't name symbolic links. The filter sees a
            // link under both names.
            if kind == .directory { return [] }
            let pattern = slash + escaped(path, "*?[]{}\\")
            return kind == .link ? [pattern, pattern + Array(".rclonelink".utf8)] : [pattern]
        }
    }

    private func excludes(_ path: [UInt8], _ kind: BackupEntry.Kind) -> [[UInt8]] {
        switch tool {
        case nil: return [isAbsolute ? absolute(path) : relative(path)]
        case .restic:
            // Patterns of Go's filepath.Match; "$" begins an environment variable.
            let pattern = escaped(absolute(path), "*?[\\")
            return [pattern.flatMap { $0 == UInt8(ascii: "$") ? [$0, $0] : [$0] }]
        case .borg: return [Array("pp:".utf8) + absolute(path)]
        case .tar: return [relative(escaped(path, "*?[\\"))]
        case .rsync:
            // rsync takes a backslash literally in a pattern without wildcards.
            let hasWildcards = path.contains { "*?[".utf8.contains($0) }
            return [slash + (hasWildcards ? escaped(path, "*?[\\") : path)]
        case .rclone:
            let pattern = slash + escaped(path, "*?[]{}\\")
            return kind == .directory ? [pattern + Array("/**".utf8)] : [pattern]
        }
    }

    private let slash = [UInt8(ascii: "/")]

    private func absolute(_ path: [UInt8]) -> [UInt8] {
        root.last == UInt8(ascii: "/") ? root + path : root + slash + path
    }

    /// A name may begin with a hyphen, which some programs take for an option.
    private func relative(_ path: [UInt8]) -> [UInt8] { Array("./".utf8) + path }

    private func escaped(_ path: [UInt8], _ special: String) -> [UInt8] {
        path.flatMap { special.utf8.contains($0) ? [UInt8(ascii: "\\"), $0] : [$0] }
    }
}
