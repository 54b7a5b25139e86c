import WardSystem

/// Something that reads bytes which ward did not write, and what has to hold for any of them.
///
/// A run ends in one of three ways: the bytes are refused, they are taken and what was read
/// survives being written and read again (or whatever else `run` checks), or the process ends. The
/// last one is what the fuzzer looks for.
struct Parser: Sendable {
    /// As fuzz/run and the directories of inputs have it.
    let name: String
    /// Longer inputs find nothing more, and slow everything down.
    var maximumBytes = 4096
    let run: @Sendable ([UInt8]) -> Void

    static let all: [Parser] =
        formatParsers + keyParsers + controlParsers + containerParsers + commandParsers
        + systemParsers + volumeParsers
}

/// Ends the process where `condition` does not hold: a finding.
func require(_ condition: Bool, _ message: @autoclosure () -> String) {
    if !condition { fatalError(message()) }
}

/// What `body` returns, nil where it throws: a refusal.
func taken<R: ~Copyable, E: Error>(_ body: () throws(E) -> R) -> R? {
    do throws(E) {
        return try body()
    } catch {
        return nil
    }
}

/// In locked memory, as ward has what is secret.
func locked(_ bytes: [UInt8]) -> SecretBytes {
    guard var secret = try? SecretBytes(zeroed: bytes.count) else {
        fatalError("no memory can be locked")
    }
    secret.withUnsafeMutableBytes { $0.copyBytes(from: bytes) }
    return secret
}
