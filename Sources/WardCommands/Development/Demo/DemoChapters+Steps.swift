import Glibc
import WardConsole
import WardControl
import WardSystem

/// The steps that several chapters take: checks, and work on files.
extension DemoChapters {
    func everythingIsBack() throws(DemoStop) {
        if hasGit {
            try world.run(["git", "-C", "files/diary", "fsck", "--full", "--no-progress"])
            try world.run(["git", "-C", "files/diary", "status", "--short"])
        }
        try readable(DemoChapters.diary, "A", "as it was")
        try database("C", "intact")
        for (index, photograph) in photographs.enumerated() {
            let path = "files/photos/\(index + 1).jpg"
            try world.check(DemoFile.holds(photograph, path), "CX \(path): every byte is right")
        }
    }

    func readable(_ path: String, _ letter: String, _ why: String) throws(DemoStop) {
        let text = try? DemoFile.read(path).get()
        try world.check(
            text?.contains(DemoFile.marker) == true,
            "\(Text.padded(letter, 2)) \(path): readable (\(why))")
    }

    func refused(_ path: String, _ letter: String, _ doing: String) throws(DemoStop) {
        try world.check(
            DemoFile.read(path) == .failure(.notPermitted),
            "\(Text.padded(letter, 2)) \(path): \(doing) answers EPERM")
    }

    func database(_ letter: String, _ why: String) throws(DemoStop) {
        guard hasSQLite else { return try readable(DemoChapters.contacts, letter, why) }
        let answer = try world.run([
            "sqlite3", DemoChapters.contacts,
            "PRAGMA integrity_check; SELECT count(*) || ' people' FROM people;",
        ])
        try world.check(
            answer.output == "ok\n3 people\n",
            "\(Text.padded(letter, 2)) \(DemoChapters.contacts): \(why)")
    }

    // MARK: Doing

    func git(_ words: String...) throws(DemoStop) {
        try world.run(
            ["git", "-C", "files/diary", "-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
                + words)
    }

    func write(_ text: String, to path: String) throws(DemoStop) {
        try perform("write \(path)") { () throws(Errno) in try DemoFile.write(text, to: path) }
    }

    func open(_ path: String) throws(DemoStop) -> OwnedDescriptorBox {
        var result: OwnedDescriptorBox?
        try perform("open \(path)") { () throws(Errno) in
            result = OwnedDescriptorBox(try OwnedDescriptor(opening: path, O_RDWR))
        }
        guard let result else { throw failed("open \(path)", .badFileDescriptor) }
        return result
    }

    func creating(_ path: String) -> Errno? {
        do throws(Errno) {
            _ = try OwnedDescriptor(opening: path, O_WRONLY | O_CREAT | O_EXCL, mode: 0o644)
            return nil
        } catch {
            return error
        }
    }

    func append(_ text: String, to descriptor: Int32) -> Bool {
        let bytes = Array(text.utf8)
        guard let status = try? Syscall.fstat(descriptor) else { return false }
        return (try? Syscall.pwrite(descriptor, bytes, bytes.count, at: status.st_size)) != nil
    }

    func perform(_ doing: String, _ body: () throws(Errno) -> Void) throws(DemoStop) {
        do throws(Errno) {
            try body()
        } catch {
            throw failed(doing, error)
        }
    }

    func failed(_ doing: String, _ error: Errno) -> DemoStop {
        .step(world.step, "\(doing): \(Text.reason(error))")
    }
}
