import Foundation

/// Content that exists nowhere else: files of one class, each written and read back in a different
/// way.
struct Planted {
    let fileClass: FileClass
    /// The way of writing, and the sixteen characters that the content repeats.
    private(set) var tokens: [(way: String, token: String)] = []
    /// Steps that failed while planting; if there are any, the test proves nothing.
    private(set) var failures: [String] = []

    /// The token repeated to `bytes` bytes.
    private mutating func content(_ way: String, _ bytes: Int) -> String {
        let token = Planted.token()
        tokens.append((way, token))
        return String(repeating: token, count: bytes / token.count)
    }

    static func token(_ count: Int = 16) -> String {
        let letters = Array("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
        return String((0..<count).map { _ in letters.randomElement()! })
    }

    /// Makes files in the class's directory, which exists. With `keepsOpen` descriptors and
    /// mappings stay open.
    init(_ fileClass: FileClass, with probe: Probe, keepsOpen: Bool) {
        self.fileClass = fileClass
        let top = fileClass.letter
        var fails: [String] = []
        func must(_ outcome: Outcome, _ what: String) {
            if !outcome.succeeded { fails.append("\(top) \(what): \(outcome)") }
        }
        let small = content("small write", 96)
        must(probe.open("\(top)/small", "rw+c", as: "\(top) small"), "open")
        must(probe.pwrite("\(top) small", small), "pwrite")
        must(probe.pread("\(top) small", 96), "pread")
        for (way, bytes) in [("page", 4096), ("large", 300_000), ("huge", 1_600_000)] {
            must(probe.writeFile("\(top)/\(way)", content(way, bytes)), way)
            must(probe.call("digest", "\(top)/\(way)"), way)
        }
        let mapped = content("mapping", 9600)
        must(probe.open("\(top)/mapped", "rw+c", as: "\(top) mapped"), "open")
        must(probe.ftruncate("\(top) mapped", 9600), "ftruncate")
        must(probe.mmap("\(top) mapped", 9600, "rw", as: "\(top) map"), "mmap")
        must(probe.poke("\(top) map", at: 0, mapped), "poke")
        must(probe.call("msync", "\(top) map"), "msync")
        must(probe.touch("\(top) map", at: 0, 9600), "touch")
        let direct = content("direct", 8192)
        must(probe.open("\(top)/direct", "rw+c+direct", as: "\(top) direct"), "open")
        must(probe.call("directWrite", "\(top) direct", direct, 0), "directWrite")
        must(probe.call("directRead", "\(top) direct", 8192, 0), "directRead")
        must(probe.open("\(top)/appended", "rw+c+a", as: "\(top) appended"), "open")
        must(probe.write("\(top) appended", content("append", 5000)), "append")
        must(probe.write("\(top) appended", content("append again", 33)), "append")
        must(probe.call("splice", "\(top) appended", 4096, 0), "splice")
        must(probe.fsync("\(top) appended"), "fsync")
        must(
            probe.writeFile("\(top)/database", "SQLite format 3\0" + content("database", 4080)),
            "db")
        must(probe.readFile("\(top)/database"), "db")
        if !keepsOpen {
            must(probe.call("munmap", "\(top) map"), "munmap")
            for name in ["small", "mapped", "direct", "appended"] {
                must(probe.close("\(top) \(name)"), "close")
            }
        }
        failures = fails
    }

    var patterns: SecretPatterns {
        var patterns = SecretPatterns()
        for (way, token) in tokens {
            // From every position in the token, because a cipher's last block may hold only a few
            // bytes.
            let twice = Array(token.utf8) + Array(token.utf8)
            for start in 0..<token.utf8.count {
                patterns.add(
                    exactly: "content of \(fileClass.letter), \(way)",
                    Array(twice[start..<start + 8]))
            }
        }
        return patterns
    }
}
