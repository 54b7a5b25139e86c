import CWardLinux
import Glibc
import WardConsole
import WardCrypto
import WardSystem

/// The words for a secret in error messages.
struct SecretKind {
    let name: String
    /// The advice for an empty one.
    let emptyHint: String
    let tooLongHint: String

    static let passcode = SecretKind(
        name: "passcode",
        emptyHint: "a volume without a passcode is made by ward init VOLUME --no-passcode",
        tooLongHint: "a passcode is 1 to 1,024 bytes of UTF-8 text")
}

/// Reads secrets directly into locked memory.
enum SecretInput {
    /// The longest passcode in bytes; a longer one is refused, never cut.
    static let maximumBytes = 1024

    static func read(
        file: String?, descriptor: Int32?, option: String, asking question: String,
        _ console: Console, _ kind: SecretKind = .passcode
    ) throws(CommandFailure) -> SecretBytes {
        if let file { return try read(file: file, kind) }
        if let descriptor { return try read(descriptor: descriptor, kind) }
        return try check(try ask(question, option: option, console, kind), kind)
    }

    static func readNew(
        file: String?, descriptor: Int32?, option: String, asking question: String,
        _ console: Console
    ) throws(CommandFailure) -> SecretBytes {
        if let file { return try read(file: file) }
        if let descriptor { return try read(descriptor: descriptor) }
        let first = try check(try ask(question, option: option, console, .passcode), .passcode)
        let second = try ask("The same again: ", option: option, console, .passcode)
        guard first == second else {
            throw CommandFailure(
                "cannot take the passcode", why: "the two entries differ",
                hint: "try again, or read it from a file with \(option)-file", status: .badData)
        }
        return first
    }

    /// Reads the whole file, without one newline at its end.
    static func read(
        file path: String, _ kind: SecretKind = .passcode
    ) throws(CommandFailure) -> SecretBytes {
        leaveNoDump()
        let result: SecretBytes
        do throws(Errno) {
            let file = try OwnedDescriptor(opening: path, O_RDONLY | O_NOCTTY)
            var secret = try SecretBytes(zeroed: maximumBytes + 2)
            var count = 0
            try secret.withUnsafeMutableBytes { buffer throws(Errno) in
                while count < buffer.count {
                    let got = try Syscall.read(
                        file.rawValue, buffer.baseAddress! + count, buffer.count - count)
                    if got == 0 { break }
                    count += got
                }
            }
            result = try withoutNewline(secret, count)
        } catch {
            throw CommandFailure("cannot read the \(kind.name) from", path, errno: error)
        }
        return try check(result, kind)
    }

    /// Reads one line byte by byte, so that the rest stays for the next reader of the descriptor.
    static func read(
        descriptor: Int32, _ kind: SecretKind = .passcode
    ) throws(CommandFailure) -> SecretBytes {
        leaveNoDump()
        let subject = "descriptor \(descriptor)"
        let result: SecretBytes
        do throws(Errno) {
            var secret = try SecretBytes(zeroed: maximumBytes + 2)
            var count = 0
            try secret.withUnsafeMutableBytes { buffer throws(Errno) in
                while count < buffer.count {
                    let got = try Syscall.read(descriptor, buffer.baseAddress! + count, 1)
                    if got == 0 { break }
                    count += 1
                    if buffer[count - 1] == UInt8(ascii: "\n") { break }
                }
            }
            result = try withoutNewline(secret, count)
        } catch {
            throw CommandFailure("cannot read the \(kind.name) from", subject, errno: error)
        }
        return try check(result, kind)
    }

    private static func ask(
        _ question: String, option: String, _ console: Console, _ kind: SecretKind
    ) throws(CommandFailure) -> SecretBytes {
        let hint = "\(option)-file FILE or \(option)-fd N"
        guard console.mayAsk else {
            throw CommandFailure(
                "cannot ask for the \(kind.name)", why: "--no-input forbids it", hint: hint,
                status: .usage)
        }
        leaveNoDump()
        do throws(Errno) {
            let terminal = try TerminalPrompt()
            return try ask(question, terminal)
        } catch {
            if error == .noSuchAddressOrDevice || error == .noSuchFileOrDirectory {
                throw CommandFailure(
                    "cannot ask for the \(kind.name)", why: "there is no terminal", hint: hint,
                    status: .usage)
            }
            throw CommandFailure(
                "cannot read the \(kind.name) from", "the terminal", errno: error)
        }
    }

    static func ask(
        _ question: String, _ terminal: borrowing TerminalPrompt
    ) throws(Errno) -> SecretBytes {
        var secret = try SecretBytes(zeroed: maximumBytes + 2)
        let count = try secret.withUnsafeMutableBytes { buffer throws(Errno) in
            try terminal.readHidden(question, into: buffer)
        }
        return try withoutNewline(secret, count)
    }

    /// Disables core dumps and debuggers of the same user for this process. Secrets lie in memory
    /// that no dump holds, but registers and scrypt's intermediate values do not. Control-\ would
    /// be enough for a dump.
    static func leaveNoDump() {
        var none = rlimit(rlim_cur: 0, rlim_max: 0)
        setrlimit(__rlimit_resource_t(RLIMIT_CORE.rawValue), &none)
        _ = ward_prctl(PR_SET_DUMPABLE, 0)
    }

    /// Drops one newline at the end. Keeps one byte above the limit, so that `check` sees a secret
    /// that is too long.
    private static func withoutNewline(
        _ secret: borrowing SecretBytes, _ count: Int
    ) throws(Errno) -> SecretBytes {
        let endsInNewline = secret.withUnsafeBytes {
            count > 0 && $0[count - 1] == UInt8(ascii: "\n")
        }
        return try secret.slice(0..<min(endsInNewline ? count - 1 : count, maximumBytes + 1))
    }

    /// Refuses an empty or too long secret before it is used.
    private static func check(
        _ secret: consuming SecretBytes, _ kind: SecretKind
    ) throws(CommandFailure) -> SecretBytes {
        if secret.count == 0 {
            throw CommandFailure(
                "cannot take the \(kind.name)", why: "it is empty", hint: kind.emptyHint,
                status: .badData)
        }
        if secret.count > maximumBytes {
            throw CommandFailure(
                "cannot take the \(kind.name)", why: "it is longer than \(maximumBytes) bytes",
                hint: kind.tooLongHint, status: .badData)
        }
        return secret
    }
}
