import WardSystem

/// A parser of bytes that ward did not write, and the conditions for all inputs.
///
/// A run ends in one of three ways. The parser refuses the bytes. It accepts them, and the result
/// survives writing and reading again (and the other checks of `run`). Or the process ends, which
/// is what the fuzzer looks for.
struct Parser: Sendable {
    /// The name in fuzz/run and of the directories of inputs.
    let name: String
    /// The size limit. Longer inputs find nothing more, and slow the run down.
    var maximumBytes = 4096
    let run: @Sendable ([UInt8]) -> Void

    static let all: [Parser] =
        formatParsers + keyParsers + controlParsers + containerParsers + commandParsers
        + systemParsers + volumeParsers
}

/// Ends the process, as a finding, unless `condition` holds.
func require(_ condition: Bool, _ message: @autoclosure () -> String) {
    if !condition { fatalError(message()) }
}

/// The result of `body`; nil where it throws, which is a refusal.
func taken<R: ~Copyable, E: Error>(_ body: () throws(E) -> R) -> R? {
    do throws(E) {
        return try body()
    } catch {
        return nil
    }
}

/// Puts bytes into locked memory, where ward keeps its secrets.
func locked(_ bytes: [UInt8]) -> SecretBytes {
    guard var secret = try? SecretBytes(zeroed: bytes.count) else {
        fatalError("no memory can be locked")
    }
    secret.withUnsafeMutableBytes { $0.copyBytes(from: bytes) }
    return secret
}
