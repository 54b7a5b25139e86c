import Glibc
import WardConsole
import WardSystem

/// Searches a directory for words, as an attacker with the disk would: in contents, names and link
/// targets.
struct DemoSearch {
    private(set) var files = 0
    private(set) var bytes = 0
    private(set) var hits: [String] = []
    private let words: [UInt8]

    static func search(_ path: String, for words: String) -> DemoSearch {
        var search = DemoSearch(words: Array(words.utf8))
        if let directory = try? OwnedDescriptor(opening: path, O_RDONLY | O_DIRECTORY) {
            search.visit(directory.rawValue, path)
        }
        return search
    }

    private init(words: [UInt8]) { self.words = words }

    private mutating func visit(_ directory: Int32, _ path: String) {
        for name in (try? DirectoryReading.names(in: directory)) ?? [] {
            let shown = path + "/" + Text.printable(name)
            if contains(name) { hits.append(shown) }
            try? NodeName(bytes: name).withCString { pointer throws(Errno) in
                let status = try Syscall.fstatat(directory, pointer)
                switch status.st_mode & S_IFMT {
                case S_IFDIR:
                    let inner = OwnedDescriptor(
                        adopting: try Syscall.openat(directory, pointer, O_RDONLY | O_DIRECTORY))
                    visit(inner.rawValue, shown)
                case S_IFREG:
                    let file = OwnedDescriptor(
                        adopting: try Syscall.openat(directory, pointer, O_RDONLY))
                    let content = try FileReading.bytes(of: file.rawValue, limit: 1 << 28)
                    files += 1
                    bytes += content.count
                    if contains(content) { hits.append(shown) }
                case S_IFLNK:
                    var target = [UInt8](repeating: 0, count: 4096)
                    let count = try Syscall.readlinkat(
                        directory, pointer, &target, target.count)
                    if contains(Array(target[0..<count])) { hits.append(shown) }
                default: break
                }
            }
        }
    }

    private func contains(_ content: [UInt8]) -> Bool {
        content.withUnsafeBytes { content in
            words.withUnsafeBytes { words in
                var position = 0
                // memchr(3) finds candidates; this is fast enough in a debug build too.
                while position + words.count <= content.count,
                    let found = memchr(
                        content.baseAddress! + position, Int32(words[0]),
                        content.count - position - words.count + 1)
                {
                    if memcmp(found, words.baseAddress!, words.count) == 0 { return true }
                    position = UnsafeRawPointer(found) - content.baseAddress! + 1
                }
                return false
            }
        }
    }
}
