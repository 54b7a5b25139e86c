import Foundation
import Testing

extension MountSuite {
    /// `ward container run --sandbox`: the limits of a hostile program inside, and the rights of an
    /// honest one.
    @Suite struct SandboxTests {
        private let diary = "org.example.diary"
        private let secret = "CLASS-A-SECRET"

        private func makeVolume(_ user: User) throws -> MountedVolume {
            let volume = try MountedVolume(as: user)
            let file = try volume.entitlements("app", Place.complete, groups: ["group.mine"])
            let other = try volume.entitlements("other", Place.complete, groups: ["group.other"])
            try volume.container("create", diary, "--entitlements", file)
            try volume.container("create", "org.example.other", "--entitlements", other)
            try volume.shell(
                """
                cd "$MNT"; echo \(secret) >outside; ward=\(TestEnvironment.shared.ward)
                "$ward" class set A outside
                echo \(secret) >"\(Place.applications)org.example.other/Documents/file"
                echo \(secret) >"\(Place.groups)group.other/file"; echo \(secret) >"$OUT/file"
                """)
            return volume
        }

        private func root(_ volume: MountedVolume) -> String {
            volume.mountPoint + "/" + Place.applications + diary
        }

        // MARK: Attacks

        /// The data that Scripts/sandboxed.py got, by attack; nil for an attack that got nothing.
        private func attack(
            _ volume: MountedVolume, _ other: MountedVolume, _ server: UserServer,
            sandbox: Bool
        ) throws -> [String: String?] {
            let environment = TestEnvironment.shared
            let second = volume.directory + "/second"
            let record = try #require(volume.record())
            let uuid = try #require(record["uuid"] as? String)
            let key = "/ward/\(uuid)/device.key"
            let mounts = volume.mountPoint + "/"
            var places: [String: Any] = [
                "mountpoint": volume.mountPoint, "backing": volume.volume,
                "state": volume.stateDirectory, "runtime": volume.runtimeDirectory,
                "socket": try #require(volume.socketPath()), "uuid": uuid, "secret": secret,
                "container": root(volume), "processes": [try #require(volume.daemonProcess())],
                "servers": [
                    ["unix", server.path], ["abstract", server.directory], ["tcp", server.port],
                ],
                "write": [
                    "/usr", "/etc", environment.ward, volume.passcodeFile,
                    volume.directory + "/home/file",
                ],
                "read": [
                    "file outside": [mounts + "outside"],
                    "other container": [
                        mounts + Place.applications + "org.example.other/Documents/file",
                        mounts + Place.groups + "group.other/file",
                    ],
                    "other volume": [other.mountPoint + "/outside"],
                    "home": [volume.directory + "/home/file"],
                    "passcode file": [volume.passcodeFile],
                    "keys": [volume.stateDirectory + key],
                    "keys by another path": [second + key],
                ],
                "tables": [second + "/proc"],
            ]
            // An attack that would destroy the volume runs only in the sandbox.
            if sandbox { places["destroy"] = true }
            let json = String(
                decoding: try JSONSerialization.data(withJSONObject: places), as: UTF8.self)
            // A directory without the daemon's keys: the caller's variables must not matter.
            volume.variables["XDG_STATE_HOME"] = volume.directory + "/home"
            defer { volume.variables = [:] }
            var words = [
                "bash", "-euc",
                // With a directory left open.
                #"exec 7</ 8<"$0"; exec "$@""#, volume.mountPoint, environment.ward, "container",
                "run", volume.mountPoint, diary,
            ]
            let script = environment.script("sandboxed.py")
            if sandbox { words += ["--sandbox", "--show", script] }
            words += ["--", environment.python, script, json]
            if volume.user == .root {
                // Other ways to the keys and to the processes, which only root can make.
                let script = """
                    mkdir -p "$0/ward" "$0/proc"; mount --bind "$STATE/ward" "$0/ward"
                    mount -t proc proc "$0/proc"; exec "$@"
                    """
                words = ["unshare", "-m", "bash", "-euc", script, second] + words
            }
            let done = try Child.run(
                volume.user.prefix + words,
                environment: volume.environment.merging(["STATE": volume.stateDirectory]) { $1 },
                seconds: 120)
            #expect(done.succeeded, "\(done.everything)")
            var got: [String: String?] = [:]
            for line in done.output.split(separator: "\n") {
                let parts = line.dropFirst(4).split(separator: ": ", maxSplits: 1).map(String.init)
                got[parts[0]] = .some(line.hasPrefix("got ") ? parts.last : nil)
            }
            return got
        }

        @Test(
            "a hostile program gets nothing of what is outside, by any way that works without a sandbox",
            arguments: User.available)
        func attacks(user: User) throws {
            let volume = try makeVolume(user)
            let other = try MountedVolume(as: user)
            try other.shell("echo \(secret) >\"$MNT/outside\"")
            let server = try UserServer(volume, secret)
            let open = try attack(volume, other, server, sandbox: false).compactMapValues { $0 }
            let closed = try attack(volume, other, server, sandbox: true)
            let got = closed.compactMapValues { $0 }
            #expect(got.isEmpty, "\(got)")
            // Each attack works where nothing prevents it.
            var working: Set = [
                "file outside", "other container", "other volume", "home", "passcode file", "keys",
                "symbolic link", "hard link", "rename out", "parent directories",
                "inherited descriptors", "backing listed", "backing written", "state listed",
                "state written",
                "runtime listed", "ciphertext exchanged", "socket replaced",
                "status tells", "events tell", "server unix", "server abstract", "server tcp",
                "other processes", "user namespace", "record set", "record removed",
                "attribute control", "attribute status",
            ]
            working.formUnion(
                [
                    "Holders", "Advance", "SetFull", "TrustList", "TrustRemove", "ReadRecovery",
                    "TrustAdd", "TrustConnect", "SetPolicy", "SetPasscode", "ChangePasscode",
                    "RemovePasscode", "Unlock", "Backup", "Check", "Erase",
                ].map { "control " + $0 })
            if user == .root {
                working.formUnion([
                    "keys by another path", "roots of processes", "kernel settings",
                    "files of root", "capabilities",
                ])
            }
            #expect(working.subtracting(open.keys) == [])
            #expect(Set(closed.keys).isSuperset(of: working.union(["control Lock", "mounting"])))
            // Nothing was locked, unmounted or erased.
            #expect(try volume.shell("cat \"$MNT/outside\"") == secret + "\n")
            #expect(try volume.listing().keys.contains(diary))
        }

        @Test(
            "a program gives itself no other group for its next run", arguments: User.available)
        func record(user: User) throws {
            let volume = try makeVolume(user)
            let script = """
                import json, os, sys
                name = "user.ward.container"
                record = json.loads(os.getxattr(sys.argv[1], name))
                record["groups"] = sorted(record.get("groups", []) + ["group.other"])
                try:
                    os.setxattr(sys.argv[1], name, json.dumps(record).encode())
                except OSError as error:
                    print(error.errno)
                """
            func forge(_ options: String...) throws -> String {
                let python = [TestEnvironment.shared.python, "-c", script, root(volume)]
                return try volume.run(diary, options + ["--"] + python).output
            }
            func groups() throws -> [String] {
                try volume.listing()[diary]?["groups"] as? [String] ?? []
            }
            #expect(try forge("--sandbox") == "\(EPERM)\n")
            #expect(try groups() == ["group.mine"])
            // The owner may.
            #expect(try forge() == "")
            #expect(try groups() == ["group.mine", "group.other"])
        }

        @Test(
            "a directory as a standard stream is refused: its parents lie outside",
            arguments: User.available)
        func directoryStreams(user: User) throws {
            let volume = try makeVolume(user)
            for redirection in ["<\"$MNT\"", "3<\"$MNT\" >&3", "3<\"$MNT\" 2>&3"] {
                let output = try volume.shell(
                    """
                    exec 9>&1
                    \(TestEnvironment.shared.ward) container run "$MNT" \(diary) --sandbox \
                        -- sh -c ': >"$HOME/ran"' \(redirection) || echo "code $?" >&9
                    """)
                #expect(output == "code 64\n", "\(redirection)")
            }
            #expect(try !volume.tree(Place.applications + diary).contains("ran"))
        }

        @Test(
            "--show shows what it names to read, and nothing that holds a volume, keys or sockets",
            arguments: User.available)
        func show(user: User) throws {
            let volume = try makeVolume(user)
            let other = try MountedVolume(as: user)
            try volume.shell("mkdir -p \"$OUT/shown/in\"; echo shown >\"$OUT/shown/in/file\"")
            let shown = volume.directory + "/home/shown"
            let seen = try volume.run(
                diary,
                [
                    "--sandbox", "--show", shown, "--", "sh", "-c",
                    "cat \"$0/in/file\"; ls -A \"$0/..\"; echo x >\"$0/in/file\"", shown,
                ])
            #expect(seen.output == "shown\nshown\n" && seen.status == 2, "\(seen.everything)")
            let refused = [
                "/", "/proc", "/proc/self", "/tmp", volume.directory, volume.volume,
                volume.mountPoint, volume.mountPoint + "/outside", volume.stateDirectory,
                volume.stateDirectory + "/ward", volume.runtimeDirectory,
                volume.runtimeDirectory + "/ward", other.volume, other.mountPoint, other.directory,
            ]
            for path in refused {
                let done = try volume.run(diary, ["--sandbox", "--show", path, "--", "true"])
                #expect(
                    done.status == 64
                        && done.errors.hasPrefix("ward: error: cannot show \(path): ")
                        && done.errors.contains("which no sandbox shows\nward: hint: "),
                    "\(path): \(done.everything)")
            }
            #expect(
                try volume.refusal(66, "run", diary, "--sandbox", "--show", "/none", "--", "true")
                    .contains("cannot show /none"))
            #expect(
                try volume.refusal(64, "run", diary, "--show", shown, "--", "true").contains(
                    "for --sandbox"))
        }

        @Test("--network opens the network, and what has no path", arguments: User.available)
        func network(user: User) throws {
            let volume = try makeVolume(user)
            let server = try UserServer(volume, secret)
            let script = """
                import socket, sys
                for family, address in [(socket.AF_INET, ("127.0.0.1", int(sys.argv[1]))),
                                        (socket.AF_UNIX, "\\0" + sys.argv[2]), (socket.AF_UNIX, sys.argv[3])]:
                    try:
                        with socket.socket(family) as client:
                            client.connect(address)
                            print(client.recv(100).decode())
                    except OSError:
                        print("no")
                """
            let words = [
                "--", TestEnvironment.shared.python, "-c", script, "\(server.port)",
                server.directory, server.path,
            ]
            #expect(
                try volume.run(diary, ["--sandbox", "--network"] + words).output
                    == "\(secret)\n\(secret)\nno\n")
            #expect(try volume.run(diary, ["--sandbox"] + words).output == "no\nno\nno\n")
        }

        @Test(
            "left in the background of a terminal, it reads nothing of what is typed there",
            arguments: User.available)
        func typedElsewhere(user: User) throws {
            let volume = try makeVolume(user)
            // In sessions of their own, where no rule about the foreground stops them, by every
            // descriptor of a terminal.
            let thief = """
                import os, sys
                names = ["/dev/tty", 0, 1, 2]
                for place in names:
                    if os.fork() == 0:
                        os.setsid()
                        try:
                            file = os.open(place, os.O_RDWR) if isinstance(place, str) else place
                            while os.isatty(file):
                                typed = os.read(file, 100)
                                if not typed:
                                    break
                                with open(os.environ["HOME"] + "/taken", "ab") as taken:
                                    taken.write(typed)
                        finally:
                            os._exit(0)
                print("in its place", flush=True)
                os.wait()
                """
            // A shell that goes on reading after it started the program.
            let shell = """
                set -m; exec 5<"$0"; shift
                "$@" <&5 & while read -r line; do echo "typed: $line"; done; kill %1; wait
                """
            let terminal = try Terminal(
                volume, columns: 200, "container", "run", volume.mountPoint, diary,
                words: [
                    "--", "bash", "-c", shell, "/dev/tty", "-", TestEnvironment.shared.ward,
                    "container", "run", volume.mountPoint, diary, "--sandbox", "--",
                    TestEnvironment.shared.python, "-c", thief,
                ])
            try terminal.wait(for: "in its place", seconds: 60)
            for number in 1...5 {
                try terminal.type("correct horse \(number)\n")
                try terminal.wait(for: "typed: correct horse \(number)", seconds: 60)
            }
            #expect(try !volume.tree(Place.applications + diary).contains("taken"))
            try terminal.type("\u{4}")
            _ = try terminal.end(seconds: 60)
        }

        // MARK: Honest programs

        @Test("an honest program finds what it needs", arguments: User.available)
        func honest(user: User) throws {
            let volume = try makeVolume(user)
            let done = try volume.run(
                diary,
                [
                    "--sandbox", "--", "bash", "-euo", "pipefail", "-c",
                    """
                    cd "$HOME/Documents"
                    python3 - <<'END'
                    import os, pwd, sqlite3, ssl, subprocess, tempfile, time, zoneinfo
                    database = sqlite3.connect("diary.sqlite")
                    database.execute("pragma journal_mode=wal")
                    database.execute("create table entries (text)")
                    with database:
                        database.executemany("insert into entries values (?)", [("rain",)] * 100)
                    print(database.execute("select count(*) from entries").fetchone()[0])
                    print(pwd.getpwuid(os.getuid()).pw_uid == os.getuid())
                    with tempfile.NamedTemporaryFile() as file:
                        print(file.name.startswith(os.environ["HOME"] + "/tmp/"))
                    print(os.getxattr("diary.sqlite", "user.ward.class").decode())
                    print(subprocess.run(["true"]).returncode, len(os.listdir("/proc")) > 10)
                    END
                    sqlite3 diary.sqlite 'pragma integrity_check'
                    git init -q tree; cd tree; echo x >file; git add file
                    git -c user.name=a -c user.email=a@example.org commit -qm first; git fsck
                    echo x >/tmp/x; echo x >/var/tmp/x; echo x >/dev/shm/x; mkfifo "$HOME/fifo"
                    date +%Z; ls -d /etc/ssl/certs; head -c1 /dev/urandom | wc -c
                    """,
                ])
            #expect(
                done.output == """
                    100
                    True
                    True
                    \(Place.complete)
                    0 True
                    ok
                    UTC
                    /etc/ssl/certs
                    1

                    """ && done.succeeded, "\(done.everything)")
        }

        @Test(
            "a link that a program makes in its container has no file outside shown to its next run",
            arguments: User.available)
        func linkedProgram(user: User) throws {
            let volume = try makeVolume(user)
            try volume.shell(
                """
                mkdir "$OUT/bin"; printf '%s\\n' '#!/bin/sh' 'echo \(secret)' >"$OUT/bin/deploy"
                chmod 700 "$OUT/bin/deploy"
                """)
            let outside = volume.directory + "/home/bin"
            let own = root(volume) + "/Documents"
            let made = try volume.run(
                diary,
                [
                    "--sandbox", "--", "sh", "-c",
                    "ln -s \(outside)/deploy \(own)/link; ln -s \(outside) \(own)/bin; "
                        + "ln -s /usr/bin/id \(own)/id",
                ])
            #expect(made.succeeded, "\(made.everything)")
            for program in [own + "/link", own + "/bin/deploy"] {
                let done = try volume.run(diary, ["--sandbox", "--", program])
                #expect(
                    !done.succeeded && !done.everything.contains(secret), "\(done.everything)")
            }
            #expect(try volume.run(diary, ["--sandbox", "--", own + "/id"]).succeeded)
        }

        @Test(
            "a program that lies elsewhere is shown, by its path, by PATH and by a link",
            arguments: User.available)
        func programElsewhere(user: User) throws {
            let volume = try makeVolume(user)
            try volume.shell(
                """
                mkdir "$OUT/bin"; cp /bin/echo "$OUT/bin/say"; ln -s "$OUT/bin/say" "$OUT/link"
                printf '%s\\n' '#!/bin/sh' 'ls -A "${0%/*}"' >"$OUT/bin/look"; chmod +x "$OUT/bin/look"
                """)
            let home = volume.directory + "/home"
            func output(_ command: String...) throws -> String {
                try volume.run(diary, ["--sandbox", "--"] + command).output
            }
            #expect(try output(home + "/bin/say", "path") == "path\n")
            #expect(try output(home + "/link", "link") == "link\n")
            // Nothing that lies beside the program is visible.
            #expect(try output(home + "/bin/look") == "look\n")
            volume.variables["PATH"] = home + "/bin:/usr/bin:/bin"
            #expect(try output("say", "found") == "found\n")
            volume.variables = [:]
            let relative = try volume.shell(
                "cd \"$OUT\"; \(TestEnvironment.shared.ward) container run \"$MNT\" \(diary) "
                    + "--sandbox -- bin/say relative")
            #expect(relative == "relative\n")
        }

        @Test("the example of the documents works", arguments: User.available)
        func example(user: User) throws {
            let volume = try MountedVolume(as: user)
            let examples = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
                .appendingPathComponent("../../../Examples/Diary").standardizedFileURL.path
            let copy = volume.directory + "/Diary"
            try FileManager.default.copyItem(atPath: examples, toPath: copy)
            chmod(copy, 0o755)
            try volume.container("create", diary, "--entitlements", copy + "/Diary.entitlements")
            let run = ["--sandbox", "--", copy + "/diary"]
            #expect(try volume.run(diary, run + ["It rained."]).succeeded)
            #expect(try volume.run(diary, run).output.hasSuffix("  It rained.\n"))
            #expect(try volume.letters(Place.applications + diary + "/Documents/entries") == ["A"])
            #expect(try Set(volume.listing().keys) == [diary, "group." + diary])
        }

        @Test(
            "the lock state is told inside, as it changes, and nothing but the state",
            arguments: User.available)
        func state(user: User) throws {
            let volume = try makeVolume(user)
            let script = """
                import json, os, socket, sys
                client = socket.socket(socket.AF_UNIX)
                client.connect(os.getxattr(os.environ["HOME"], "user.ward.socket").decode())
                client.sendall(json.dumps({"method": "org.ward.Volume.Monitor", "more": True, "parameters":
                                           {"signals": True, "status": True}}).encode() + b"\\0")
                pending = b""
                while True:
                    while b"\\0" not in pending:
                        piece = client.recv(65536)
                        if not piece:
                            sys.exit("the daemon hung up")
                        pending += piece
                    message, pending = pending.split(b"\\0", 1)
                    print(message.decode(), flush=True)
                    if b'"didBecomeAvailable"' in message and b'"A"' in message:
                        break
                """
            let up = try Child.pipe()
            let child = try Child(
                volume.user.prefix + [
                    TestEnvironment.shared.ward, "container", "run", volume.mountPoint, diary,
                    "--sandbox", "--", TestEnvironment.shared.python, "-c", script,
                ], environment: volume.environment, output: up.writing, errors: STDERR_FILENO)
            close(up.writing)
            let lines = LineReader(up.reading)
            let status = try #require(try lines.next()["status"] as? [String: Any])
            #expect(status["state"] as? String == "unlocked")
            #expect(status["mountpoint"] as? String == volume.mountPoint)
            for name in ["uuid", "volume"] { #expect(status[name] as? String == "") }
            for name in ["pid", "sequence", "lost", "denied"] {
                #expect(status[name] as? Int == 0, "\(name)")
            }
            for name in ["triesLeft", "recoveryKit", "transport"] { #expect(status[name] == nil) }
            for name in ["hosts", "requests", "lostPaths"] {
                #expect((status[name] as? [Any])?.isEmpty == true, "\(name)")
            }
            try volume.lockNow()
            // The program gets no events about files outside.
            try volume.shell("! cat \"$MNT/outside\" 2>/dev/null")
            try volume.unlock()
            var kinds: [String] = []
            while kinds.last != "didBecomeAvailable A" {
                let event = try #require(try lines.next()["event"] as? [String: Any])
                #expect(
                    Set(event.keys).isSubset(of: [
                        "sequence", "time", "kind", "state", "protectionClass", "secondsLeft",
                    ]), "\(event)")
                #expect(event["sequence"] as? Int == 0)
                kinds.append(
                    "\(event["kind"] ?? "") \(event["protectionClass"] ?? "")"
                        .trimmingCharacters(in: .whitespaces))
            }
            #expect(kinds.contains("didBecomeUnavailable A") && kinds.contains("locked"))
            #expect(!kinds.contains { $0.hasPrefix("denied") || $0.hasPrefix("note") })
            #expect(child.wait(seconds: 60) == 0)
        }

        @Test(
            "ward inside tells the state, and says why it does no more", arguments: User.available)
        func wardInside(user: User) throws {
            let volume = try makeVolume(user)
            let ward = TestEnvironment.shared.ward
            func inside(_ words: String...) throws -> Finished {
                try volume.run(diary, ["--sandbox", "--", ward] + words)
            }
            let home = root(volume)
            let status = try inside("status", home, "--json")
            #expect(status.succeeded && status.output.contains("unlocked"), "\(status.everything)")
            #expect(try inside("status", home).succeeded)
            try volume.shell("echo x >'\(home)/Documents/x'")
            #expect(try inside("ls", home + "/Documents").output.hasPrefix("A"))
            #expect(try inside("class", "set", "C", home + "/Documents/x").succeeded)
            for words in [
                ["lock", home], ["lock", home, "--now"], ["holders", home], ["unmount", home],
                ["reboot", home],
            ] {
                let done = try volume.run(diary, ["--sandbox", "--", ward] + words)
                #expect(
                    done.status != 0 && done.errors.contains("ward: error: "),
                    "\(words): \(done.everything)")
            }
            let lock = try inside("lock", home)
            #expect(
                lock.status == 77
                    && lock.errors.contains(
                        "in a container's sandbox the daemon tells the lock state alone"),
                "\(lock.everything)")
            #expect(try volume.shell("cat \"$MNT/outside\"") == secret + "\n")
        }

        @Test(
            "a daemon without the socket that tells the state: said so, and nothing runs",
            arguments: User.available)
        func noStateSocket(user: User) throws {
            let volume = try makeVolume(user)
            let socket = try #require(volume.socketPath())
            // The daemon makes the socket again at once, so this program goes on removing it.
            let script =
                """
                import os, sys
                while True:
                    try: os.unlink(sys.argv[1])
                    except OSError: pass
                """
            let remover = try Child(
                user.prefix + [TestEnvironment.shared.python, "-c", script, socket + ".state"],
                environment: volume.environment)
            defer { remover.kill() }
            // A run that saw the socket may start, or be refused by bubblewrap once it is gone.
            var done: Finished?
            _ = try comesTrue {
                done = try volume.run(diary, ["--sandbox", "--", "true"])
                return done?.errors.contains("no socket tells the state") == true
            }
            let refused = try #require(done)
            #expect(
                refused.status == 69 && refused.errors.hasPrefix("ward: error: ")
                    && refused.errors.contains("\nward: hint: ")
                    && refused.errors.contains("no socket tells the state"),
                "\(refused.everything)")
        }
    }
}

/// The user's server outside of the sandbox: `Scripts/servers.py`.
private final class UserServer {
    let directory: String
    let port: Int
    var path: String { directory + "/server" }
    private let child: Child
    private let requests: Int32

    init(_ volume: MountedVolume, _ secret: String) throws {
        directory = volume.directory + "/home"
        let down = try Child.pipe()
        let up = try Child.pipe()
        let environment = TestEnvironment.shared
        child = try Child(
            volume.user.prefix + [
                environment.python, environment.script("servers.py"), directory, secret,
            ], environment: volume.environment, input: down.reading, output: up.writing,
            errors: STDERR_FILENO)
        close(down.reading)
        close(up.writing)
        requests = down.writing
        let line = FileHandle(fileDescriptor: up.reading, closeOnDealloc: true).availableData
        let text = String(decoding: line, as: UTF8.self).trimmingCharacters(in: .newlines)
        guard let port = Int(text) else { throw SupportError("the server says '\(text)'") }
        self.port = port
    }

    deinit {
        close(requests)
        child.kill()
    }
}

/// Reads JSON values that a program writes, one a line.
private final class LineReader {
    private let handle: FileHandle
    private var pending = Data()

    init(_ descriptor: Int32) {
        handle = FileHandle(fileDescriptor: descriptor, closeOnDealloc: true)
    }

    func next() throws -> [String: Any] {
        while true {
            if let end = pending.firstIndex(of: UInt8(ascii: "\n")) {
                let line = pending[..<end]
                pending = Data(pending[(end + 1)...])
                let message = try JSONSerialization.jsonObject(with: line) as? [String: Any]
                return message?["parameters"] as? [String: Any] ?? [:]
            }
            let piece = handle.availableData
            guard !piece.isEmpty else { throw SupportError("the program has ended") }
            pending += piece
        }
    }
}

extension MountedVolume {
    /// Runs `ward container run ID …` to its end.
    fileprivate func run(_ id: String, _ arguments: [String]) throws -> Finished {
        try Child.run(
            user.prefix + [TestEnvironment.shared.ward, "container", "run", mountPoint, id]
                + arguments, environment: environment)
    }
}
