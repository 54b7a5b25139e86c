import Foundation
import Testing

extension MountSuite {
    /// Rows O1 to O8 and O13 to O15 of semantics.md: the answers of operations on content, by class
    /// and state.
    @Suite struct OperationRowTests {
        @Test(
            "O1: opening an existing file needs its class's key, before any truncation",
            arguments: User.available)
        func o1(user: User) throws {
            let modes = ["r", "w", "rw", "w+a", "w+t", "rw+t", "w+c", "r+direct"]
            try StateWalk(user: user).run { probe, fileClass in
                let directory = fileClass.letter
                for mode in modes {
                    #expect(probe.writeFile("\(directory)/\(mode)", "kept") == .ok)
                }
            } check: { probe, state, fileClass in
                for mode in modes {
                    let file = "\(fileClass.letter)/\(mode)"
                    let result = probe.open(file, mode, as: "fd")
                    #expect(
                        result == .allowed(state.opens(fileClass)),
                        "\(file) in \(state.rawValue) as \(user.rawValue)")
                    if result.succeeded {
                        #expect(probe.close("fd") == .ok)
                        #expect(probe.writeFile(file, "kept") == .ok)
                    }
                    #expect(probe.stat(file, "size") == .number(4), "\(file) in \(state.rawValue)")
                }
            } finish: { probe, fileClass in
                for mode in modes {
                    #expect(probe.readFile("\(fileClass.letter)/\(mode)") == .data("kept"))
                }
            }
        }

        @Test(
            "O2: a second open of a B file fails while locked though another descriptor holds it",
            arguments: User.available)
        func o2(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            try StateWalk.makeDirectory(of: .completeUnlessOpen, with: probe)
            #expect(probe.open("B/f", "rw", as: "held") == .ok)
            for state in LockState.walk {
                try volume.enter(state)
                let second = probe.open("B/f", "r", as: "second")
                #expect(second == .allowed(state.opens(.completeUnlessOpen)), "\(state.rawValue)")
                if second.succeeded { #expect(probe.close("second") == .ok) }
                #expect(
                    probe.pread("held", 9)
                        == .allowed(state.serves(.completeUnlessOpen), .data("content o")))
            }
        }

        @Test(
            "O3: creating needs the class's key, B only the public half; nothing is left of a denial",
            arguments: User.available)
        func o3(user: User) throws {
            try StateWalk(user: user).run { probe, state, fileClass in
                let directory = fileClass.letter
                let allowed = state.creates(fileClass)
                let file = "\(directory)/new in \(state.rawValue)"
                #expect(
                    probe.open(file, "rw+c+x", as: "fd") == .allowed(allowed),
                    "\(file) as \(user.rawValue)")
                #expect(probe.exists(file) == allowed, "\(file)")
                if allowed {
                    #expect(probe.protectionClass(file) == .data(fileClass.apple))
                    #expect(probe.write("fd", "written in \(state.rawValue)").succeeded)
                    // The descriptor of a file made while locked works until it is closed.
                    #expect(probe.pread("fd", 7) == .data("written"))
                    #expect(probe.close("fd") == .ok)
                    let again = probe.open(file, "r", as: "fd")
                    #expect(again == .allowed(state.opens(fileClass)), "\(file)")
                    if again.succeeded { #expect(probe.close("fd") == .ok) }
                }
                let node = "\(directory)/node in \(state.rawValue)"
                #expect(
                    probe.call("mknod", node, 0o100644) == .allowed(allowed), "mknod \(node)")
                #expect(probe.exists(node) == allowed, "\(node)")
                // The file may be empty and without a key; it still has its class.
                if allowed { #expect(probe.protectionClass(node) == .data(fileClass.apple)) }
            } finish: { probe, fileClass in
                for state in LockState.walk {
                    let file = "\(fileClass.letter)/new in \(state.rawValue)"
                    guard state.creates(fileClass), probe.exists(file) else { continue }
                    #expect(probe.readFile(file) == .data("written in \(state.rawValue)"))
                }
            }
        }

        @Test(
            "O4: reading and asking for size, data and holes on a descriptor opened earlier",
            arguments: User.available)
        func o4(user: User) throws {
            try StateWalk(user: user).run { probe, fileClass in
                let file = fileClass.letter + "/f"
                #expect(probe.open(file, "rw", as: "\(fileClass.letter) cached") == .ok)
                #expect(probe.pread("\(fileClass.letter) cached", 100).succeeded)
                #expect(probe.open(file, "r+direct", as: "\(fileClass.letter) direct") == .ok)
            } check: { probe, state, fileClass in
                let allowed = state.serves(fileClass)
                let content = StateWalk.content(fileClass)
                let cached = "\(fileClass.letter) cached"
                let comment: Comment =
                    "\(fileClass.letter) in \(state.rawValue) as \(user.rawValue)"
                let length = content.utf8.count
                #expect(probe.pread(cached, 100) == .allowed(allowed, .data(content)), comment)
                #expect(
                    probe.call("directRead", "\(fileClass.letter) direct", 4096, 0)
                        == .allowed(allowed, .data(content)), comment)
                #expect(
                    probe.call("splice", cached, length, 0) == .allowed(allowed, .data(content)),
                    comment)
                #expect(
                    probe.seek(cached, 0, SEEK_END) == .allowed(allowed, .number(length)), comment)
                #expect(
                    probe.seek(cached, 0, 3) == .allowed(allowed, .number(0)), "DATA \(comment)")
                #expect(
                    probe.seek(cached, 0, 4) == .allowed(allowed, .number(length)),
                    "HOLE \(comment)")
                // The kernel alone knows the position of the next read.
                #expect(probe.seek(cached, 3, SEEK_SET) == .number(3), comment)
                #expect(
                    probe.call("read", cached, 2)
                        == .allowed(allowed, .data(String(content.dropFirst(3).prefix(2)))), comment
                )
            }
        }

        @Test("O5: writing and appending on a descriptor opened earlier", arguments: User.available)
        func o5(user: User) throws {
            try StateWalk(user: user).run { probe, fileClass in
                let letter = fileClass.letter
                #expect(probe.open("\(letter)/f", "rw", as: "\(letter) write") == .ok)
                #expect(probe.open("\(letter)/log", "w+a+c", as: "\(letter) append") == .ok)
                #expect(probe.write("\(letter) append", "-") == .number(1))
                #expect(probe.open("\(letter)/d", "rw+c+direct", as: "\(letter) direct") == .ok)
            } check: { probe, state, fileClass in
                let allowed = state.serves(fileClass)
                let letter = fileClass.letter
                let comment: Comment = "\(letter) in \(state.rawValue) as \(user.rawValue)"
                let word = state.rawValue.prefix(2)
                #expect(
                    probe.pwrite("\(letter) write", "C", at: 0) == .allowed(allowed, .number(1)),
                    comment)
                #expect(
                    probe.write("\(letter) append", "\(word),") == .allowed(allowed, .number(3)),
                    comment)
                #expect(
                    probe.call("directWrite", "\(letter) direct", "block", 0)
                        == .allowed(allowed, .number(5)), comment)
            } finish: { probe, fileClass in
                let log = probe.readFile(fileClass.letter + "/log").text
                let states = log == "-S0," ? [.noPasscode] : LockState.walk
                let expected = states.filter { $0.serves(fileClass) }
                    .map { $0.rawValue.prefix(2) + "," }.joined()
                #expect(log == "-" + expected)
            }
        }

        @Test("O6: changing the length and allocating", arguments: User.available)
        func o6(user: User) throws {
            try StateWalk(user: user).run { probe, fileClass in
                let letter = fileClass.letter
                for name in ["ftruncate", "truncate", "fallocate"] {
                    #expect(probe.writeFile("\(letter)/\(name)", "12345678") == .ok)
                    #expect(probe.open("\(letter)/\(name)", "rw", as: "\(letter) \(name)") == .ok)
                }
            } check: { probe, state, fileClass in
                let letter = fileClass.letter
                let comment: Comment = "\(letter) in \(state.rawValue) as \(user.rawValue)"
                let held = state.serves(fileClass)
                for length in [10_000, 0, 8] {
                    #expect(
                        probe.ftruncate("\(letter) ftruncate", length) == .allowed(held), comment)
                    #expect(
                        probe.stat("\(letter)/ftruncate", "size") == .number(held ? length : 8),
                        comment)
                    let byPath = state.opens(fileClass)
                    #expect(
                        probe.truncate("\(letter)/truncate", length) == .allowed(byPath), comment)
                    #expect(
                        probe.stat("\(letter)/truncate", "size") == .number(byPath ? length : 8),
                        comment)
                }
                // Plain, KEEP_SIZE, PUNCH_HOLE | KEEP_SIZE, ZERO_RANGE.
                for mode in [0, 1, 3, 16] {
                    #expect(
                        probe.fallocate("\(letter) fallocate", mode: mode, 0, 8) == .allowed(held),
                        "mode \(mode), \(comment)")
                }
                #expect(probe.stat("\(letter)/fallocate", "size") == .number(8), comment)
            }
        }

        @Test("O7: mapping a descriptor opened earlier", arguments: User.available)
        func o7(user: User) throws {
            try StateWalk(user: user).run { probe, fileClass in
                #expect(probe.open("\(fileClass.letter)/f", "rw", as: fileClass.letter) == .ok)
                #expect(probe.pread(fileClass.letter, 100).succeeded)
            } check: { probe, state, fileClass in
                for sharing in ["shared", "private"] {
                    let comment: Comment = "\(fileClass.letter) \(sharing) in \(state.rawValue)"
                    let mapped = probe.call("mmap", fileClass.letter, 4096, "r", "map", sharing)
                    guard mapped.succeeded else {
                        #expect(mapped == .eperm, comment)
                        #expect(!state.serves(fileClass), comment)
                        continue
                    }
                    let content = StateWalk.content(fileClass)
                    let touched = probe.touch("map", content.utf8.count)
                    #expect(
                        touched == (state.serves(fileClass) ? .data(content) : .sigbus), comment)
                    #expect(probe.call("munmap", "map") == .ok)
                }
            }
        }

        @Test("O8: touching a page mapped before the lock", arguments: User.available)
        func o8(user: User) throws {
            try StateWalk(user: user).run { probe, fileClass in
                let letter = fileClass.letter
                for protection in ["r", "rw"] {
                    #expect(probe.open("\(letter)/f", "rw", as: letter) == .ok)
                    let map = "\(letter) \(protection)"
                    #expect(probe.mmap(letter, 4096, protection, as: map) == .ok)
                    #expect(probe.touch(map, 7) == .data("content"))
                    // From here on only the mapping keeps the file open.
                    #expect(probe.close(letter) == .ok)
                }
            } check: { probe, state, fileClass in
                let letter = fileClass.letter
                let comment: Comment = "\(letter) in \(state.rawValue) as \(user.rawValue)"
                let served = state.serves(fileClass)
                #expect(
                    probe.touch("\(letter) r", 7) == (served ? .data("content") : .sigbus), comment)
                #expect(
                    probe.touch("\(letter) rw", 7) == (served ? .data("content") : .sigbus), comment
                )
                #expect(
                    probe.poke("\(letter) rw", "content") == (served ? .ok : .sigbus), comment)
            }
        }

        @Test(
            "O13: descriptors opened before a lock or reboot work again after the next unlock",
            arguments: User.available)
        func o13(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            for fileClass in FileClass.allCases {
                let letter = fileClass.letter
                try StateWalk.makeDirectory(of: fileClass, with: probe)
                #expect(probe.open("\(letter)/f", "rw", as: letter) == .ok)
                #expect(probe.mmap(letter, 4096, "rw", as: letter) == .ok)
                #expect(probe.touch(letter, 7) == .data("content"))
            }
            for state in [LockState.locked, .lockedInactive, .beforeFirstUnlock] {
                try volume.enter(state)
                for fileClass in FileClass.allCases {
                    #expect(
                        probe.pread(fileClass.letter, 7)
                            == .allowed(state.serves(fileClass), .data("content")))
                }
                try volume.unlock()
                for fileClass in FileClass.allCases {
                    let letter = fileClass.letter
                    let comment: Comment = "\(letter) after \(state.rawValue)"
                    #expect(probe.pread(letter, 7) == .data("content"), comment)
                    #expect(probe.touch(letter, 7) == .data("content"), comment)
                    #expect(probe.pwrite(letter, "C", at: 0) == .number(1), comment)
                    #expect(probe.touch(letter, 1) == .data("C"), comment)
                    #expect(probe.poke(letter, "c") == .ok, comment)
                    #expect(probe.readFile("\(letter)/f") == .data(StateWalk.content(fileClass)))
                }
            }
        }

        @Test("O14: the ciphertext can be read in every state", arguments: User.available)
        func o14(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            try StateWalk.makeDirectories(with: probe)
            // A durable point may replace the state record meanwhile. Its staged file may vanish
            // before tar opens it, and tar sees that the directory has changed.
            for state in LockState.walk {
                try volume.enter(state)
                let copy = try Child.run(
                    user.prefix + [
                        "tar", "-C", volume.volume, "--exclude=.ward-new-*", "-cf", "/dev/null",
                        ".",
                    ],
                    environment: volume.environment)
                let changed = copy.errors.split(separator: "\n").allSatisfy {
                    $0 == "tar: .: file changed as we read it"
                        || $0 == "tar: ./ward.state: file changed as we read it"
                }
                #expect(
                    copy.succeeded || copy.status == 1 && changed,
                    "in \(state.rawValue): \(copy.everything)")
                // GNU tar does not read files if it writes to /dev/null.
                try volume.shell(
                    "find '\(volume.volume)' -type f ! -name '.ward-new-*' -exec cat {} + | wc -c")
            }
        }

        @Test("O15: a file without a name has its class decided late", arguments: User.available)
        func o15(user: User) throws {
            try StateWalk(user: user).run { probe, state, fileClass in
                let letter = fileClass.letter
                let allowed = state.creates(fileClass)
                let comment: Comment = "\(letter) in \(state.rawValue) as \(user.rawValue)"
                // The first data decides the class.
                #expect(probe.tmpfile(letter, as: "t") == .ok, comment)
                #expect(probe.pwrite("t", "unnamed") == .allowed(allowed, .number(7)), comment)
                if allowed { #expect(probe.pread("t", 7) == .data("unnamed"), comment) }
                #expect(probe.close("t") == .ok)
                // linkat decides the class.
                #expect(probe.tmpfile(letter, as: "t") == .ok, comment)
                let name = "\(letter)/linked in \(state.rawValue)"
                #expect(probe.linkat("t", name) == .allowed(allowed), comment)
                #expect(probe.exists(name) == allowed, comment)
                if allowed {
                    #expect(probe.protectionClass(name) == .data(fileClass.apple), comment)
                    #expect(probe.pwrite("t", "late") == .number(4), comment)
                }
                #expect(probe.close("t") == .ok)
                // A class that is set decides: here D's directory gives a file of each class.
                #expect(probe.tmpfile("D", as: "t") == .ok, comment)
                let set = probe.setClass("t", fileClass.rawValue)
                #expect(set == .allowed(allowed), comment)
                let chosen = "D/\(letter) in \(state.rawValue)"
                if allowed {
                    #expect(probe.pwrite("t", "chosen") == .number(6), comment)
                    #expect(probe.linkat("t", chosen) == .ok, comment)
                    #expect(probe.protectionClass(chosen) == .data(fileClass.apple), comment)
                }
                #expect(probe.close("t") == .ok)
            } finish: { probe, fileClass in
                for state in LockState.walk where state.creates(fileClass) {
                    let letter = fileClass.letter
                    guard probe.exists("\(letter)/linked in \(state.rawValue)") else { continue }
                    #expect(
                        probe.readFile("\(letter)/linked in \(state.rawValue)") == .data("late"))
                    #expect(probe.readFile("D/\(letter) in \(state.rawValue)") == .data("chosen"))
                }
            }
        }
    }
}
