import Glibc
import WardControl
import WardKeys
import WardSystem

/// The part of the machine that a sandboxed program sees, as arguments of bubblewrap, bwrap(1). The
/// view starts empty: only places named here exist.
struct SandboxView {
    /// Absolute, like all paths here.
    let container: String
    let groups: [String]
    let mountPoint: String
    /// The path by which programs on the volume know it.
    let controlSocket: String
    /// The socket that only tells the lock state; shown in place of the control socket.
    let stateSocket: String
    /// Additional paths that the user asked for, read-only, without symbolic links.
    let shown: [String]
    let sharesNetwork: Bool
    /// The command's path, and the same without symbolic links; nil where it was not found.
    let program: (path: String, file: String)?
    /// This program, which starts the command in the sandbox.
    let starter: String

    /// System directories, shown read-only; every user can read them on any such machine.
    private static let system = [
        "/usr", "/opt", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
        "/var/cache/fontconfig", "/var/lib/ca-certificates",
    ]
    /// Entries of `/etc` that programs need and every user may read. The rest of `/etc` is not
    /// shown: it holds passwords and keys, which root can read even without capabilities.
    private static let settings = [
        "alternatives", "bash.bashrc", "bash_completion", "bash_completion.d", "ca-certificates",
        "ca-certificates.conf", "crypto-policies", "debian_version", "fonts", "gai.conf",
        "group", "gtk-3.0", "gtk-4.0", "host.conf", "hostname", "hosts", "inputrc", "ld.so.cache",
        "ld.so.conf", "ld.so.conf.d", "locale.alias", "locale.conf", "localtime", "lsb-release",
        "magic", "magic.mime", "mailcap", "mime.types", "networks", "nsswitch.conf", "os-release",
        "passwd", "perl", "pki/ca-trust", "pki/tls/cert.pem", "pki/tls/certs",
        "pki/tls/openssl.cnf", "profile", "profile.d", "protocols", "resolv.conf", "rpc",
        "services", "shells", "skel", "ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone",
        "xdg", "zsh", "zshrc",
    ].map { "/etc/" + $0 }
    /// Prefixes of directories in `/etc` that have a version in their names.
    private static let versionedSettings = ["java", "python"]
    /// Lies in a system directory but holds this machine's settings.
    private static let localSettings = "/usr/local/etc"

    private var own: [String] { [container] + groups }

    // MARK: Places that hold secrets of volumes

    /// Mount points, backing directories, keys and sockets. Also mounts of proc, which lead to the
    /// roots of other processes. `isClaim`: only the mount's source says that a volume is there.
    private static func secrets(beside controlSocket: String) -> [(path: String, isClaim: Bool)] {
        var places = [
            StateDirectory.defaultRoot(), RuntimeDirectory.defaultPath(),
            Path.parent(controlSocket),
        ].map { (path: (try? Path.real($0)) ?? $0, isClaim: false) }
        for entry in MountTable.now.entries {
            if entry.isWard || entry.type == "proc" { places.append((entry.mountPoint, false)) }
            if entry.isWard, entry.source.hasPrefix("/") { places.append((entry.source, true)) }
        }
        return places
    }

    /// Places with secrets of volumes inside `directory` or around it.
    private static func secrets(around directory: String, _ controlSocket: String) -> [String] {
        secrets(beside: controlSocket).filter { place in
            guard
                PathBytes.isInside(place.path, directory)
                    || PathBytes.isInside(directory, place.path)
            else { return false }
            // A user who mounts something chooses its source name. The name of a system directory
            // must not hide that directory.
            return !place.isClaim || access(place.path + "/ward.keybag", F_OK) == 0
        }.map(\.path)
    }

    /// The place that forbids showing `directory`; nil where none does.
    static func secret(around directory: String, controlSocket: String) -> String? {
        secrets(around: directory, controlSocket).first
    }

    /// Places inside system directories that must be covered.
    private var covered: [String] {
        var places = [mountPoint, SandboxView.localSettings]
        for directory in SandboxView.system where !SandboxView.isLink(directory) {
            places += SandboxView.secrets(around: directory, controlSocket)
                .filter { PathBytes.isInside($0, directory) && !PathBytes.isSame($0, directory) }
        }
        var seen: [String] = []
        for place in places
        where !seen.contains(place)
            && (place == mountPoint || (try? Syscall.stat(place)) != nil)
        {
            seen.append(place)
        }
        // Outer places first: a cover inside another one is made again in it.
        return seen.sorted { $0.utf8.count < $1.utf8.count }
    }

    /// Other file systems mounted inside the shown directories of the volume, which would become
    /// visible with them.
    private var mountedInside: [String] {
        MountTable.now.entries.map(\.mountPoint).filter { place in
            own.contains { PathBytes.isInside(place, $0) && !PathBytes.isSame(place, $0) }
        }.sorted { $0.utf8.count < $1.utf8.count }
    }

    // MARK: The arguments

    /// `filter` is the descriptor of the seccomp filter. `forbidsNamespaces`: this bubblewrap can
    /// do that.
    func arguments(filter: Int32, forbidsNamespaces: Bool) -> [String] {
        var words = [
            // A namespace of each kind. In the host's network namespace the command could reach
            // abstract sockets, unix(7), and local servers, which act for their user.
            "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts",
            "--unshare-cgroup-try", "--cap-drop", "ALL", "--seccomp", "\(filter)",
            "--die-with-parent", "--new-session",
        ]
        if forbidsNamespaces { words.append("--disable-userns") }
        if !sharesNetwork { words.append("--unshare-net") }
        for place in SandboxView.system + SandboxView.settings + versionedSettings {
            words += SandboxView.showing(place)
        }
        words += ["--proc", "/proc", "--dev", "/dev"]
        for place in ["/run", "/tmp", "/var/tmp"] { words += ["--tmpfs", place] }
        let covered = covered
        for place in covered { words += ["--tmpfs", place] }
        for place in shown { words += ["--ro-bind", place, place] }
        for (path, file) in files where !isShown(path) { words += ["--ro-bind", file, path] }
        for place in own { words += ["--bind", place, place] }
        let inside = mountedInside
        for place in inside { words += SandboxView.covering(place) }
        words += [
            "--ro-bind", stateSocket, controlSocket,
        ]
        // A write outside the container must fail instead of being lost with the sandbox.
        for place in covered + ["/"] { words += ["--remount-ro", place] }
        // Root owns the kernel's settings and may write them even without capabilities.
        if geteuid() == 0 { words += ["--remount-ro", "/proc"] }
        let here = Path.current ?? "/"
        let isHidden = (covered + inside).contains { place in
            PathBytes.isInside(here, place) && !own.contains { PathBytes.isInside(here, $0) }
                || inside.contains { PathBytes.isInside(here, $0) }
        }
        return words + ["--chdir", isShown(here) && !isHidden ? here : container]
    }

    /// Programs that lie elsewhere: the path in the sandbox and the file.
    private var files: [(path: String, file: String)] {
        var files = [(path: starter, file: starter)]
        guard let program, !isFound(program.path, by: own),
            SandboxView.secrets(around: program.file, controlSocket).isEmpty
        else { return files }
        for path in [program.path, program.file] where !files.contains(where: { $0.path == path }) {
            files.append((path, program.file))
        }
        return files
    }

    /// Whether the path leads through one of these directories. A program could have made a link
    /// there that points to a file outside.
    private func isFound(_ path: String, by directories: [String]) -> Bool {
        func isInside(_ place: String) -> Bool {
            directories.contains { PathBytes.isInside(place, $0) }
        }
        var place = path
        // The kernel follows at most 40 links, path_resolution(7).
        for _ in 0..<40 {
            let parent = Path.parent(place)
            if isInside(place) || isInside((try? Path.real(parent)) ?? parent) { return true }
            guard let target = SandboxView.linkTarget(of: place) else { return false }
            place = target.hasPrefix("/") ? target : Path.joined(parent, target)
        }
        return true
    }

    private func isShown(_ path: String) -> Bool {
        (SandboxView.system + shown + own).contains { PathBytes.isInside(path, $0) }
    }

    private var versionedSettings: [String] {
        guard let directory = try? OwnedDescriptor(opening: "/etc", O_RDONLY | O_DIRECTORY),
            let names = try? DirectoryReading.names(in: directory.rawValue)
        else { return [] }
        return names.map { String(decoding: $0, as: UTF8.self) }.filter { name in
            SandboxView.versionedSettings.contains { name.hasPrefix($0) }
        }.map { "/etc/" + $0 }
    }

    private static func isLink(_ path: String) -> Bool {
        guard let status = try? Syscall.fstatat(AT_FDCWD, path) else { return false }
        return status.st_mode & S_IFMT == S_IFLNK
    }

    /// Shows a place that exists and is readable for all. A link to a shown place stays a link:
    /// programs read the time zone's name from it.
    private static func showing(_ path: String) -> [String] {
        guard let file = try? Path.real(path), let status = try? Syscall.stat(file),
            status.st_mode & 0o004 != 0
        else { return [] }
        if isLink(path), let target = linkTarget(of: path),
            (system + settings).contains(where: { PathBytes.isInside(file, $0) })
        {
            return ["--symlink", target, path]
        }
        return ["--ro-bind", file, path]
    }

    private static func linkTarget(of path: String) -> String? {
        var buffer = [UInt8](repeating: 0, count: Int(PATH_MAX))
        guard let count = try? Syscall.readlinkat(AT_FDCWD, path, &buffer, buffer.count) else {
            return nil
        }
        return String(decoding: buffer[..<count], as: UTF8.self)
    }

    private static func covering(_ place: String) -> [String] {
        let isFile = (try? Syscall.stat(place)).map { $0.st_mode & S_IFMT != S_IFDIR } ?? false
        return isFile
            ? ["--ro-bind", "/dev/null", place] : ["--tmpfs", place, "--remount-ro", place]
    }
}
