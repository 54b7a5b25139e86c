import ArgumentParser
import Glibc
import WardControl
import WardSystem

extension ParsableCommand {
    /// Runs the command line and ends the process with its exit code.
    package static func runToExit() -> Never {
        occupyStandardStreams()
        do {
            var command = try parseAsRoot()
            try command.run()
            Glibc.exit(ExitStatus.success.rawValue)
        } catch let failure as CommandFailure {
            Console().failure(failure)
            Glibc.exit(failure.status.rawValue)
        } catch let error as Errno {
            let failure = CommandFailure("cannot go on", errno: error)
            Console().failure(failure)
            Glibc.exit(failure.status.rawValue)
        } catch let code as ExitCode {
            Glibc.exit(code.rawValue)
        } catch {
            Glibc.exit(reportParsing(error))
        }
    }

    /// Opens a closed standard stream in the wrong direction, so that its use still fails.
    /// Otherwise the next opened file, perhaps /dev/fuse or a keybag, would get its number and the
    /// output.
    private static func occupyStandardStreams() {
        for (descriptor, flags) in [(Int32(0), O_WRONLY), (1, O_RDONLY), (2, O_RDONLY)]
        where fcntl(descriptor, F_GETFD) == -1 {
            _ = Glibc.open("/dev/null", flags)
        }
    }

    /// Prints help, versions and completion scripts to stdout, and mistakes in the command line as
    /// two lines.
    private static func reportParsing(_ error: any Error) -> Int32 {
        let full = fullMessage(for: error)
        guard exitCode(for: error) != .success else {
            Console.write(full + "\n", to: 1)
            return ExitStatus.success.rawValue
        }
        // For example "  See 'ward mount --help' for more information."
        var help = "\(configuration.commandName ?? "ward") --help"
        if let start = full.range(of: "See '"), let end = full.range(of: "' for more", after: start)
        {
            help = String(full[start.upperBound..<end.lowerBound])
        }
        let failure = CommandFailure(
            "cannot read the command line", why: Text.lowerFirst(message(for: error)), hint: help,
            status: .usage)
        Console().failure(failure)
        return failure.status.rawValue
    }
}

extension String {
    fileprivate func range(of text: String, after: Range<Index>? = nil) -> Range<Index>? {
        var position = after?.upperBound ?? startIndex
        while position < endIndex {
            if self[position...].hasPrefix(text) {
                return position..<index(position, offsetBy: text.count)
            }
            position = index(after: position)
        }
        return nil
    }
}
