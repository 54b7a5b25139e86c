import ArgumentParser
import Glibc
import WardConsole
import WardControl
import WardFormat
import WardSystem

struct TrustAddCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "add", abstract: "Trust a host.",
        discussion: """
            The volume has to be unlocked, and the passcode is asked for; a wrong one counts. Writes \
            the host's record to a new file that only its owner can read: bring it to the host, and \
            leave no copy here. Whoever has it reads classes A and B of this device, if they can also \
            run ward on it, until the host is removed or expires. With --out - the record goes to stdout, \
            which must not be a terminal.

            Examples:
              ward trust add ~/papers laptop --out /media/usb/laptop.trust
              ssh device ward trust add papers laptop --out - --passcode-fd 0 <passcode >laptop.trust
            """)

    @Argument(help: "The mount point, or any path in it.", completion: .directory)
    var mountpoint: String
    @Argument(help: "What to call the host: 1 to 64 bytes.") var name: String
    @Option(help: "The new file for the host's record, or - for stdout.", completion: .file())
    var out: String
    @OptionGroup var passcode: PasscodeOptions
    @OptionGroup var options: ReportOptions

    func validate() throws {
        if !TrustedHostEntry.isName(name) {
            throw ValidationError("a name is 1 to 64 bytes of text without control characters")
        }
        if out == "-", options.json {
            throw ValidationError("--json and --out - exclude each other")
        }
    }

    func run() throws {
        let what = "cannot trust a host of"
        let connection = try VolumeConnection(what, path: mountpoint)
        let status = try connection.status()
        try refuseEarly(status)
        let console = options.console
        let file = out == "-" ? nil : try HostRecordFile.Pending(out, status)
        let secret = try passcode.read(
            asking: "Passcode of \(Text.printable(status.mountpoint)): ", console)
        let record = try HostRecordFile.make(status)
        try file?.write(record)
        try connection.call { client throws(ControlError) in
            try client.trustAdd(
                name: name, hostID: record.hostID, secret: record.secret, passcode: secret)
        }
        do throws(CommandFailure) {
            switch file {
            case .some(let file): try file.finish()
            case .none: try HostRecordFile.writeToOutput(record)
            }
        } catch {
            // The host is trusted already, but its record was not written: remove it.
            try? connection.client.trustRemove(name: name)
            throw error
        }
        if console.isJSON {
            console.json(
                .object([
                    ("volume", .string(status.volume)), ("name", .string(name)),
                    ("host", .string(HexSecret.text(record.hostID))),
                    ("file", .string(file!.path)),
                ]))
        } else if let file {
            console.confirm(
                "\(Text.printable(name)): trusted; its record is \(Text.printable(file.path))")
            console.confirm(
                "next, on the host: ssh DEVICE ward trust connect "
                    + "\(Text.shellQuoted(status.mountpoint)) --trust-fd 0 <RECORD")
        } else {
            console.note("\(Text.printable(name)) is trusted")
        }
    }

    /// Refuses before the passcode is asked for.
    private func refuseEarly(_ status: VolumeStatus) throws(CommandFailure) {
        let what = "cannot trust a host of"
        if !status.passcodeSet {
            throw CommandFailure(
                what, mountpoint, why: "no passcode is set: nothing is withheld from anybody",
                hint: "ward passcode set \(Text.shellQuoted(mountpoint))", status: .usage)
        }
        if status.state != "unlocked" {
            throw CommandFailure(
                what, mountpoint, why: "it is \(StateText.name(status.state))",
                hint: "ward unlock \(Text.shellQuoted(mountpoint))", status: .locked)
        }
        if out == "-", isatty(1) == 1 {
            throw CommandFailure(
                "cannot show the record of a host", why: "it is a secret, and stdout is a terminal",
                hint: "--out FILE", status: .usage)
        }
    }
}
