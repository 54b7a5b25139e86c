import Foundation
import Testing

extension MountSuite {
    /// A reader that was written from docs/format.md alone reads the files that ward writes.
    @Suite struct SecondReaderTests {
        @Test(
            "It extracts a volume with every feature, byte for byte, and changes nothing in it",
            arguments: User.usual, [4096, 512])
        func everyFeature(user: User, pageSize: Int) throws {
            let volume = try MountedVolume(
                as: user, initArguments: ["--page-size", String(pageSize)])
            let reader = try SecondReader(for: volume)
            try reader.features("make", volume.mountPoint)
            let manifest = try reader.manifest("manifest")
            try volume.unmount()
            try reader.extractAndCompare(manifest)
            // Listing needs no passcode.
            let listed = try reader.run("list", ["--json"], keys: [])
            #expect(listed.succeeded, "\(listed.everything)")
            #expect(
                listed.output.split(separator: "\n").count
                    >= (try String(contentsOfFile: manifest, encoding: .utf8)).split(
                        separator: "\n"
                    ).count)
        }

        @Test("What a killed daemon left, and without the passcode or with a wrong one")
        func otherStates() throws {
            let volume = try MountedVolume(as: User.available.last!)
            let reader = try SecondReader(for: volume)
            try reader.features("make", volume.mountPoint)
            let manifest = try reader.manifest("manifest")
            try volume.kill()
            volume.detach()
            try reader.extractAndCompare(manifest)

            let locked = try reader.run("check", keys: ["--no-passcode"])
            #expect(locked.status == 1, "\(locked.everything)")
            #expect(locked.errors.contains("files are locked"), "\(locked.errors)")
            let wrong = volume.directory + "/home/wrong"
            try Data("incorrect horse".utf8).write(to: URL(fileURLWithPath: wrong))
            let refused = try reader.run("check", keys: ["--passcode-file", wrong])
            #expect(refused.status == 12, "\(refused.everything)")
            let target = ["\(volume.volume)/inside"]
            #expect(try reader.run("extract", target).status == 73, "inside the volume")
        }

        @Test("It says which file is damaged, and where")
        func damage() throws {
            let volume = try MountedVolume(as: User.available.last!)
            let reader = try SecondReader(for: volume)
            try volume.shell(
                """
                cd "$MNT"; for name in whole flipped cut head wiped; do head -c 20000 /dev/zero | tr "\\0" x >$name; done
                mkdir directory; echo lost >directory/lost
                """)
            try volume.unmount()
            try damage(volume, reader)
            let checked = try reader.run("check")
            #expect(checked.status == 14, "\(checked.everything)")
            let expected = [
                "/directory: the directory has no record: nothing in it can be named",
                "/flipped: bytes 3804 to 7863: page 1 does not authenticate",
                "/head: header: the MAC does not match",
                "/wiped: bytes 3804 to 7863: page 1 is zero",
            ]
            let found = checked.errors.split(separator: "\n").filter { $0.contains("damaged: ") }
                .map { String($0).replacing("ward-reader: damaged: ", with: "") }
            #expect(found.filter { !$0.hasPrefix("/cut") } == expected, "\(checked.errors)")
            #expect(
                found.contains {
                    $0.hasPrefix("/cut: bytes ") && $0.hasSuffix("without its last page")
                },
                "\(checked.errors)")
        }

        /// Damages backing files by their inode numbers, which are the same in the mount.
        private func damage(_ volume: MountedVolume, _ reader: SecondReader) throws {
            let script = """
                import os, sys
                top, page = sys.argv[1], 4096
                def backing(size_at_least):
                    for name in os.listdir(top):
                        path = os.path.join(top, name)
                        if "." not in name and os.path.isfile(path): yield path
                numbers = dict(line.rsplit(" ", 1) for line in sys.argv[2].split(","))
                paths = {str(os.lstat(p).st_ino): p for p in backing(0)}
                def change(name, act):
                    with open(paths[numbers[name]], "r+b") as file: act(file)
                def flip(at):
                    def act(file):
                        file.seek(at); byte = file.read(1)[0]; file.seek(at); file.write(bytes([byte ^ 1]))
                    return act
                def wipe(file):
                    file.seek(page); file.write(bytes(page))
                change("flipped", flip(page + 100)); change("head", flip(20)); change("wiped", wipe)
                change("cut", lambda file: file.truncate(2 * page))
                for name in os.listdir(top):
                    path = os.path.join(top, name)
                    if os.path.islink(path + "/.ward"): os.unlink(path + "/.ward")
                """
            var numbers: [String] = []
            try volume.mount()
            for name in ["flipped", "cut", "head", "wiped"] {
                let shown = try Child.run(
                    volume.user.prefix + ["stat", "-c", "%i", volume.mountPoint + "/" + name],
                    environment: volume.environment)
                try #require(shown.succeeded, "\(shown.everything)")
                numbers.append("\(name) \(shown.output.trimmingCharacters(in: .newlines))")
            }
            try volume.unmount()
            let done = try Child.run(
                [
                    TestEnvironment.shared.python, "-c", script, volume.volume,
                    numbers.joined(separator: ","),
                ], environment: volume.environment)
            try #require(done.succeeded, "\(done.everything)")
        }
    }
}
