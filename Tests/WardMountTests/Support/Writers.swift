import Foundation
import Testing
import WardTestSupport

/// Programs that write to files of a volume until a write fails or a signal ends them
/// (`writer.py`).
struct Writers {
    let programs: [Child]
    private let outputs: [FileHandle]

    /// Returns when each program has written a page. `files`: paths on the volume, and the ways of
    /// writing.
    init(on volume: MountedVolume, _ files: [(path: String, how: String)]) throws {
        let environment = TestEnvironment.shared
        var programs: [Child] = []
        var outputs: [FileHandle] = []
        for file in files {
            let output = try Child.pipe()
            defer { close(output.writing) }
            outputs.append(FileHandle(fileDescriptor: output.reading, closeOnDealloc: true))
            programs.append(
                try Child(
                    volume.user.prefix + [
                        environment.python, environment.script("writer.py"),
                        volume.mountPoint + "/" + file.path, file.how,
                    ], environment: volume.environment, output: output.writing))
        }
        for output in outputs {
            try #require(try output.read(upToCount: 8) == Data("started\n".utf8))
        }
        self.programs = programs
        self.outputs = outputs
    }

    /// Kills the programs that still run. For each: the number of acknowledged bytes and the name
    /// of the error that ended it, or nil if a signal ended it.
    func results() -> [(acknowledged: Int, error: String)?] {
        for program in programs { program.kill() }
        return outputs.map { output in
            let words = String(decoding: output.readDataToEndOfFile(), as: UTF8.self)
                .split(whereSeparator: \.isWhitespace)
            guard words.count == 2, let acknowledged = Int(words[0]) else { return nil }
            return (acknowledged, String(words[1]))
        }
    }

    /// Kills all programs and waits for none.
    func kill() {
        for program in programs { Glibc.kill(-program.process, SIGKILL) }
    }
}
