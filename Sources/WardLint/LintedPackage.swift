import Glibc
import WardSystem

/// The Swift files of a package (or of any directory), with their findings.
struct LintedPackage {
    struct Report {
        /// Relative to the package; separated by `/`.
        var path: String
        var findings: [LintFinding]
    }

    private(set) var files: [(path: String, file: LintedFile)] = []
    /// Files and directories that could not be read, with the reason.
    private(set) var unreadable: [(path: String, error: Errno)] = []

    /// `path` is a directory, or one Swift file.
    init(at path: String) throws(Errno) {
        let node = try OwnedDescriptor(opening: path, O_RDONLY)
        if try Syscall.fstat(node.rawValue).st_mode & S_IFMT == S_IFDIR {
            add(directory: node.rawValue, prefix: "")
        } else {
            files.append(
                (path: path, file: LintedFile(source: try LintedPackage.read(node.rawValue))))
        }
        files.sort { $0.path < $1.path }
    }

    /// Adds the files of a directory. Leaves out manifests and hidden directories such as `.build`,
    /// which hold files of other packages.
    private mutating func add(directory: Int32, prefix: String) {
        do throws(Errno) {
            for name in try DirectoryReading.names(in: directory) where name.first != 0x2E {
                let path = prefix + String(decoding: name, as: UTF8.self)
                do throws(Errno) {
                    let child = OwnedDescriptor(
                        adopting: try NodeName(bytes: name).withCString { name throws(Errno) in
                            try Syscall.openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
                        })
                    let mode = try Syscall.fstat(child.rawValue).st_mode & S_IFMT
                    if mode == S_IFDIR {
                        add(directory: child.rawValue, prefix: path + "/")
                    } else if mode == S_IFREG, path.hasSuffix(".swift"),
                        !LintedPackage.isManifest(name)
                    {
                        let source = try LintedPackage.read(child.rawValue)
                        files.append((path: path, file: LintedFile(source: source)))
                    }
                } catch {
                    // A link leads to a file that is seen at its own place, or belongs to another
                    // package.
                    if error != .tooManySymbolicLinkLevels {
                        unreadable.append((path: path, error: error))
                    }
                }
            }
        } catch {
            unreadable.append((path: prefix, error: error))
        }
    }

    /// Whether the name is that of a manifest: Package.swift, Package@swift-6.0.swift.
    private static func isManifest(_ name: [UInt8]) -> Bool {
        name.starts(with: Array("Package.swift".utf8))
            || name.starts(with: Array("Package@swift-".utf8))
    }

    private static func read(_ descriptor: Int32) throws(Errno) -> [UInt8] {
        try FileReading.bytes(of: descriptor, limit: 64 << 20)
    }

    /// The files that have findings. Plain writes count where another file of the target imports
    /// the library.
    var reports: [Report] {
        let adopting = Set(
            files.filter(\.file.isAdopting).map { LintedPackage.target(of: $0.path) })
        return files.compactMap { path, file in
            let findings = file.findings(
                inAdoptingTarget: adopting.contains(LintedPackage.target(of: path)))
            return findings.isEmpty ? nil : Report(path: path, findings: findings)
        }
    }

    var isAdopting: Bool { files.contains(where: \.file.isAdopting) }

    /// The target's directory, as "Sources/App". SwiftPM looks for targets below Sources or Tests;
    /// elsewhere it is the first component.
    static func target(of path: String) -> String {
        let parts = path.split(separator: "/").dropLast()
        let isUsual = ["Sources", "Source", "src", "srcs", "Tests", "Plugins"].contains(parts.first)
        return parts.prefix(isUsual ? 2 : 1).joined(separator: "/")
    }
}
