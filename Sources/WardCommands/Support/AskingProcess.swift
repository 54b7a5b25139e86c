import Glibc
import WardControl
import WardSystem

/// A child process of this program that asks a file system which may never answer, and prints one
/// line of JSON. A child without an answer is left alone: it may hang in the kernel, where no
/// signal ends it. It ends when the file system is served again or cut off.
///
/// Concurrency: one thread at a time.
final class AskingProcess {
    private let process: ChildProcess
    private let output: OwnedDescriptor
    private var text: [UInt8] = []

    /// `words`: the command line after the program's name. Throws where no process can be started.
    init(_ words: [String]) throws(Errno) {
        let pipe = try Syscall.pipe()
        let writing = OwnedDescriptor(adopting: pipe.writing)
        output = OwnedDescriptor(adopting: pipe.reading)
        process = try ChildProcess.start(
            ChildProcess.thisProgram, ["ward"] + words, input: .null,
            output: .descriptor(writing.rawValue), error: .null)
    }

    /// Returns the child's answer; nil where none came by `deadline` (`SystemClock.monotonic`), an
    /// empty object where the child ended without one.
    func answer(until deadline: Duration) -> JSONValue? {
        while true {
            let left = deadline - SystemClock.monotonic()
            var request = pollfd(fd: output.rawValue, events: Int16(POLLIN), revents: 0)
            let ready = withUnsafeMutablePointer(to: &request) {
                try? Syscall.poll(
                    UnsafeMutableBufferPointer(start: $0, count: 1),
                    timeoutMilliseconds: Int32(max(.zero, left) / .milliseconds(1)))
            }
            guard let ready else { continue }
            if ready == 0 { return nil }
            var chunk = [UInt8](repeating: 0, count: 65536)
            guard let count = try? Syscall.read(output.rawValue, &chunk, chunk.count) else {
                return .object([])
            }
            text += chunk[..<count]
            if count > 0 { continue }
            _ = process.wait()
            return (try? JSONParser.parse(text.filter { $0 != UInt8(ascii: "\n") })) ?? .object([])
        }
    }
}
