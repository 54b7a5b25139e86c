import ArgumentParser
import Glibc
import WardBackup
import WardConsole
import WardControl
import WardSystem

struct BackupListCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list", abstract: "Print the ciphertext paths that belong into a backup.",
        discussion: """
            Works on the volume's directory itself: locked, before first unlock, and not mounted, with \
            the keys of this device. Nothing is read through the mount, and of the volume only names \
            and attributes. A directory comes before what is in it; else the order is not fixed.

            --for prints the list as a program takes it:
              restic  --files-from-verbatim    (-0: --files-from-raw)     --excludes: --exclude-file
              rclone  --include-from                                      --excludes: --exclude-from
              rsync   --files-from             (-0: with --from0)         --excludes: --exclude-from
              tar     -C VOLUME --no-recursion -T  (-0: with --null)      --excludes: -X
              borg    --paths-from-stdin   (-0: --paths-delimiter '\\0')   --excludes: --exclude-from
            docs/backup.md has the whole commands.

            Examples:
              ward backup list ~/papers --for tar | tar -C ~/.papers --no-recursion -cf papers.tar -T -
              ward backup list ~/.papers --excludes --for restic >excludes
              ward backup list ~/papers -0 | xargs -0 ls -ld
              ward backup list ~/papers --excludes --json | jq -r .reason
            """)

    @Argument(
        help: "The volume's directory, or a path in its mount.", completion: .directory)
    var volume: String
    @Flag(help: "What is left out, instead of what is backed up.") var excludes = false
    @Option(name: .customLong("for"), help: "As this program takes it.") var tool: BackupTool?
    @Flag(name: .customShort("0"), help: "A zero byte after each path, instead of a newline.")
    var zero = false
    @Flag(help: "Paths from the volume's directory, beginning with ./.") var relative = false
    @OptionGroup var options: ReportOptions

    func validate() throws {
        if let tool {
            if zero, !BackupList.takesZeroBytes(tool, isExcludes: excludes) {
                throw ValidationError("\(tool.rawValue) does not read that list with zero bytes")
            }
            if relative {
                throw ValidationError("--for says whether paths are relative")
            }
            if options.json { throw ValidationError("--for and --json are two kinds of list") }
        }
        if zero, options.json { throw ValidationError("-0 and --json are two kinds of list") }
    }

    func run() throws {
        let console = options.console
        let what = "cannot list for a backup"
        let source = try BackupSource(volume, what)
        var list = BackupList(root: source.path)
        list.tool = tool
        list.isExcludes = excludes
        list.isAbsolute = !relative
        if zero { list.separator = 0 }
        var output = ByteOutput(descriptor: 1)
        var unwritable: [[UInt8]] = []
        let sawAll = try source.look(what, console) { directory in
            if console.isJSON {
                appendJSON(directory, source.path, to: &output.buffer)
            } else {
                unwritable += list.append(directory, to: &output.buffer)
            }
            BackupListCommand.write { () throws(Errno) in try output.flushIfLarge() }
        }
        BackupListCommand.write { () throws(Errno) in try output.flush() }
        for path in unwritable {
            console.failure(
                CommandFailure(
                    "cannot list", String(decoding: path, as: UTF8.self),
                    why: "there is a line break in its name", hint: "list with -0",
                    status: .badData))
        }
        if !sawAll || !unwritable.isEmpty { throw ExitCode(ExitStatus.someFailed.rawValue) }
    }

    private func appendJSON(
        _ directory: BackupDirectory, _ root: String, to out: inout [UInt8]
    ) {
        for entry in directory.entries where (entry.exclusion != nil) == excludes {
            let path = String(decoding: directory.path(of: entry), as: UTF8.self)
            let json = JSONValue.object(present: [
                ("path", .string(relative ? path : Path.joined(root, path))),
                ("kind", .string(entry.kind.rawValue)),
                ("reason", entry.exclusion.map { .string($0.rawValue) }),
            ])
            out += json.bytes
            out.append(UInt8(ascii: "\n"))
        }
    }

    /// A reader that closed the pipe is no failure; a full disk is.
    private static func write(_ body: () throws(Errno) -> Void) {
        do throws(Errno) {
            try body()
        } catch {
            if error != .brokenPipe {
                Console().failure(
                    CommandFailure("cannot write the output", errno: error, status: .inputOutput))
            }
            Glibc.exit(ExitStatus.inputOutput.rawValue)
        }
    }
}
