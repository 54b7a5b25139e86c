import ArgumentParser
import Glibc
import WardSystem
import WardVolume

/// Programs that make backups, as far as their lists differ.
enum BackupTool: String, CaseIterable, ExpressibleByArgument {
    case restic, rclone, rsync, tar, borg

    /// Its lists name paths from the root of the machine, not from the volume's directory.
    var wantsAbsolutePaths: Bool { self == .restic || self == .borg }
}

/// Paths of a volume in the words of the program that reads them. What each takes was tried with
/// the program itself (`BackupToolTests`): restic 0.14, rclone 1.60, rsync 3.2, GNU tar 1.34, Borg
/// 1.2.
struct BackupList {
    /// Nil: plain paths.
    var tool: BackupTool?
    /// What to leave out, instead of what to take.
    var isExcludes = false
    var isAbsolute = false
    var separator = UInt8(ascii: "\n")
    /// The volume's directory.
    let root: [UInt8]

    init(root: String) { self.root = Array(root.utf8) }

    /// Whether the program reads this list with zero bytes between the paths.
    static func takesZeroBytes(_ tool: BackupTool?, isExcludes: Bool) -> Bool {
        switch tool {
        case nil, .rsync: true
        case .restic, .tar, .borg: !isExcludes
        case .rclone: false
        }
    }

    /// Appends the lines of one directory. A path that has the separator in it can't be written:
    /// these are returned.
    func append(_ directory: BackupDirectory, to out: inout [UInt8]) -> [[UInt8]] {
        var unwritable: [[UInt8]] = []
        if directory.path.isEmpty, !isExcludes, tool == .tar || tool == .borg {
            // Its own mode and attributes.
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
            // It takes a directory that is named with everything in it; one that something in it is
            // named of comes along.
            return kind == .directory ? [] : [absolute(path)]
        case .rclone:
            // Patterns, because its lists of files can't name symbolic links; it asks for a link
            // under both names.
            if kind == .directory { return [] }
            let pattern = slash + escaped(path, "*?[]{}\\")
            return kind == .link ? [pattern, pattern + Array(".rclonelink".utf8)] : [pattern]
        }
    }

    private func excludes(_ path: [UInt8], _ kind: BackupEntry.Kind) -> [[UInt8]] {
        switch tool {
        case nil: return [isAbsolute ? absolute(path) : relative(path)]
        case .restic:
            // Patterns of Go's filepath.Match, in which $ begins a variable of the environment.
            let pattern = escaped(absolute(path), "*?[\\")
            return [pattern.flatMap { $0 == UInt8(ascii: "$") ? [$0, $0] : [$0] }]
        case .borg: return [Array("pp:".utf8) + absolute(path)]
        case .tar: return [relative(escaped(path, "*?[\\"))]
        case .rsync:
            // A backslash is one of its own where a pattern has no wildcards.
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

    /// Names on disk may begin with a hyphen, which some programs take for an option.
    private func relative(_ path: [UInt8]) -> [UInt8] { Array("./".utf8) + path }

    private func escaped(_ path: [UInt8], _ special: String) -> [UInt8] {
        path.flatMap { special.utf8.contains($0) ? [UInt8(ascii: "\\"), $0] : [$0] }
    }
}

/// Bytes on their way to a descriptor, in large pieces.
struct ByteOutput {
    private let descriptor: Int32
    var buffer: [UInt8] = []

    init(descriptor: Int32) { self.descriptor = descriptor }

    /// Writes where enough has come together.
    mutating func flushIfLarge() throws(Errno) { if buffer.count >= 1 << 16 { try flush() } }

    mutating func flush() throws(Errno) {
        defer { buffer.removeAll(keepingCapacity: true) }
        try buffer.withUnsafeBufferPointer { bytes throws(Errno) in
            guard let base = bytes.baseAddress else { return }
            try Syscall.writeAll(descriptor, base, bytes.count)
        }
    }
}
