import Glibc
import WardConsole
import WardFormat
import WardSystem

/// Sets a class on paths, file by file (row I11). A failure is reported and the change goes on. It
/// follows no symbolic link below the named paths and stays on the volume.
struct ClassChange {
    let protectionClass: ProtectionClass
    let isRecursive: Bool
    let isRekeying: Bool
    /// False for a single path: the caller then throws `onlyFailure`.
    let reportsEach: Bool
    let console: Console

    private(set) var changed = 0
    /// Symbolic links and special files, which have no class.
    private(set) var skipped = 0
    var failed: Int { onlyFailure == nil ? reports.count : 1 }
    private(set) var onlyFailure: CommandFailure?
    private var reports: FailureReports
    private var progress: ProgressLine
    /// True: each change below the path is synced. False: one sync at the end.
    private var isSynced = true

    init(
        protectionClass: ProtectionClass, isRecursive: Bool, isRekeying: Bool, reportsEach: Bool,
        console: Console
    ) {
        self.protectionClass = protectionClass
        self.isRecursive = isRecursive
        self.isRekeying = isRekeying
        self.reportsEach = reportsEach
        self.console = console
        progress = ProgressLine(console)
        reports = FailureReports(console)
    }

    mutating func finish() {
        progress.clear()
        reports.finish()
    }

    /// Changes a path from the command line; a symbolic link named there is followed, as chmod(1)
    /// does.
    mutating func apply(to path: String) {
        do throws(Errno) {
            let node = try OwnedDescriptor(opening: path, OpenFlag.path)
            let status = try Syscall.fstat(node.rawValue)
            let here = "/proc/self/fd/\(node.rawValue)"
            guard FileClass.isOnWard(here) || FileClass.isOnWard(path) else {
                report(FileClass.notOnWard("cannot set the class of", path))
                return
            }
            let type = status.st_mode & S_IFMT
            guard type == S_IFREG || type == S_IFDIR else {
                report(
                    CommandFailure(
                        "cannot set the class of", path,
                        why: "only files and directories have one", status: .badData))
                return
            }
            if type == S_IFREG && isRekeying {
                let name = Array(Path.lastComponent(try Path.real(path)).utf8)
                let parent = try OwnedDescriptor(
                    opening: Path.parent(try Path.real(path)), O_RDONLY | O_DIRECTORY)
                rekey(name, in: parent.rawValue, path: path)
                return
            }
            let mark = isRecursive && !isRekeying && type == S_IFDIR ? syncMark(here) : nil
            isSynced = mark == nil
            if !set(here, path: path) { return }
            guard type == S_IFDIR && isRecursive else { return }
            do throws(Errno) {
                let directory = try OwnedDescriptor(opening: here, O_RDONLY | O_DIRECTORY)
                walk(directory.rawValue, device: status.st_dev, path: path)
            } catch {
                report(CommandFailure("cannot list", path, errno: error))
            }
            // Also where only the directory itself was changed.
            if let mark { makeDurable(here, path, mark) }
        } catch {
            report(FileClass.settingFailure(protectionClass, path, error))
        }
    }

    /// The mark for one sync at the end; nil where the daemon is of an older ward that can't do
    /// that.
    private func syncMark(_ here: String) -> [UInt8]? {
        try? ExtendedAttribute.value(of: ExtendedAttribute.wardClassUnsynced, path: here)
    }

    /// Syncs all changes since `mark`, which was taken before the first of them.
    private mutating func makeDurable(_ here: String, _ path: String, _ mark: [UInt8]) {
        do throws(Errno) {
            try ClassAttribute.set(mark, at: here, isSynced: false)
        } catch {
            report(
                CommandFailure(
                    "cannot make the class durable of what is in", path, errno: error,
                    hint: "give the same command again", status: .inputOutput))
        }
    }

    /// A directory gets its class before its content, so that files made meanwhile get it too.
    private mutating func walk(_ directory: Int32, device: dev_t, path: String) {
        let names: [[UInt8]]
        do throws(Errno) {
            names = try DirectoryReading.names(in: directory)
        } catch {
            report(CommandFailure("cannot list", path, errno: error))
            return
        }
        // Several threads change files, because each change waits for the daemon. Directories
        // follow one by one.
        let change = FileChange(
            protectionClass: protectionClass, isRekeying: isRekeying, isSynced: isSynced,
            directory: directory, device: device, path: path)
        let before = changed
        let outcomes = Parallel.map(
            names.count, threads: Parallel.threadCount, share: isRekeying ? 1 : 16,
            name: "ward-class",
            tick: { begun in
                progress.update(
                    "class \(protectionClass.letter): \(Text.grouped(before + begun)), \(path)")
            }, { change.apply(to: names[$0]) })
        for outcome in outcomes {
            switch outcome {
            case .changed: changed += 1
            case .skipped: skipped += 1
            case .failed(let failure): report(failure)
            case .gone, .directory: break
            }
        }
        for (name, outcome) in zip(names, outcomes) {
            guard case .directory = outcome else { continue }
            let shown = Path.joined(path, String(decoding: name, as: UTF8.self))
            progress.update("class \(protectionClass.letter): \(Text.grouped(changed)), \(shown)")
            visit(name, in: directory, device: device, path: shown)
        }
    }

    /// Changes a directory that `walk` found.
    private mutating func visit(
        _ name: [UInt8], in directory: Int32, device: dev_t, path: String
    ) {
        do throws(Errno) {
            let node = OwnedDescriptor(
                adopting: try NodeName(bytes: name).withCString { name throws(Errno) in
                    try Syscall.openat(directory, name, OpenFlag.path | O_NOFOLLOW)
                })
            let status = try Syscall.fstat(node.rawValue)
            let here = "/proc/self/fd/\(node.rawValue)"
            guard status.st_dev == device else { return report(FileChange.elsewhere(path)) }
            // Skip a directory that was exchanged for something else meanwhile.
            guard status.st_mode & S_IFMT == S_IFDIR else { return }
            if !set(here, path: path) { return }
            let inner = try OwnedDescriptor(opening: here, O_RDONLY | O_DIRECTORY)
            walk(inner.rawValue, device: device, path: path)
        } catch {
            if error == .noSuchFileOrDirectory { return }  // removed meanwhile
            report(FileClass.settingFailure(protectionClass, path, error))
        }
    }

    /// Sets the class. `here` names the node through `/proc/self/fd`, so that no exchanged file is
    /// changed instead.
    private mutating func set(_ here: String, path: String) -> Bool {
        do throws(Errno) {
            try ClassAttribute.set(
                Array(protectionClass.letter.utf8), at: here, isSynced: isSynced)
            changed += 1
            return true
        } catch {
            let owner = (try? Syscall.stat(here))?.st_uid
            report(FileClass.settingFailure(protectionClass, path, error, owner: owner))
            return false
        }
    }

    private mutating func rekey(_ name: [UInt8], in directory: Int32, path: String) {
        do throws(CommandFailure) {
            try Rekeying(directory: directory, name: name, path: path)
                .run(protectionClass: protectionClass) { done, size in
                    progress.update("\(path): \(size == 0 ? 100 : done * 100 / size) %")
                }
            changed += 1
        } catch {
            report(error)
        }
    }

    private mutating func report(_ failure: CommandFailure) {
        progress.clear()
        if reportsEach { reports.add(failure) } else { onlyFailure = failure }
    }
}
