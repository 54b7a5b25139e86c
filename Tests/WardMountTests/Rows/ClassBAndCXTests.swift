import Foundation
import Testing

extension MountSuite {
    /// Classes B and CX: all that the rows say of them, over days and reboots.
    @Suite struct ClassBAndCXTests {
        /// A logger writes a record every ten seconds of a day into files of class B. It makes the
        /// files, appends to them, syncs and rotates them. It starts before the first unlock, and
        /// the volume is never unlocked.
        @Test(
            "B: a day of records by a logger that never had the passcode", arguments: User.usual
        )
        func dayOfRecords(user: User) throws {
            let volume = try MountedVolume(as: user)
            let setup = try volume.probe()
            #expect(setup.mkdir("log") == .ok)
            #expect(setup.setClass("log", "B") == .ok)
            try volume.unmount()
            try volume.mount()
            // Four boots of the daemon; the logger starts again with each, as a unit would.
            for boot in 0..<4 {
                let (steps, each) = (6, 360)
                let logger = try volume.probe()
                for step in 0..<steps {
                    let records = logger.call(
                        "log", "log/\(boot).\(step)", (boot * steps + step) * each, each)
                    #expect(records == .ok, "boot \(boot), step \(step)")
                    try volume.advance(seconds: each * 10)
                    // A second open is refused; appending by the open descriptor is not.
                    #expect(logger.open("log/\(boot).\(step)", "r", as: "other") == .eperm)
                }
                let state = try volume.ward("status", volume.mountPoint, "--json").output
                #expect(state.contains(#""state":"beforeFirstUnlock""#), "\(state)")
                if boot == 1 {
                    // A reboot without unmounting takes the keys of open descriptors, too.
                    try volume.reboot()
                    #expect(
                        logger.call("log", "", 0, 1) == .eperm,
                        "the descriptor from before")
                    #expect(logger.call("closeLog") == .ok)
                } else if boot < 3 {
                    #expect(logger.call("closeLog") == .ok)
                    try volume.unmount()
                    try volume.mount()
                }
            }
            try volume.unlock()
            #expect(
                try volume.probe().call("checkLog", "log", 8640) == .ok,
                "every record is there once, in order")
            try volume.remount()
            #expect(try volume.probe().call("checkLog", "log", 8640) == .ok)
        }

        @Test(
            "B: created while locked and before first unlock; descriptors and mappings stay, the key goes at the last close",
            arguments: User.usual)
        func b(user: User) throws {
            let volume = try MountedVolume(as: user)
            try StateWalk.makeDirectory(of: .completeUnlessOpen, with: volume.probe())
            for state in [LockState.locked, .beforeFirstUnlock] {
                try volume.enter(state)
                let probe = try volume.probe()
                let name = "B/\(state.rawValue)"
                #expect(probe.open(name, "rw+c+x", as: "one") == .ok)
                #expect(probe.call("dup", "one", "two") == .ok)
                let page = String(repeating: "p", count: 8192)
                #expect(probe.write("one", page) == .number(8192))
                #expect(probe.mmap("one", 8192, "rw", as: "map") == .ok)
                #expect(probe.touch("map", at: 5000, 2) == .data("pp"))
                #expect(probe.poke("map", at: 0, "through the mapping") == .ok)
                #expect(probe.fsync("one") == .ok)
                #expect(probe.pread("one", 11) == .data("through the"))
                #expect(probe.open(name, "r", as: "second") == .eperm)
                #expect(probe.truncate(name, 0) == .eperm, "by path")
                #expect(probe.stat(name, "size") == .number(8192))
                // A lock of a locked volume changes nothing.
                try volume.lockNow()
                #expect(probe.pread("one", 11) == .data("through the"))
                #expect(probe.close("one") == .ok)
                #expect(probe.pread("two", 11) == .data("through the"), "not the last one")
                #expect(probe.call("munmap", "map") == .ok)
                #expect(probe.close("two") == .ok)
                #expect(probe.open(name, "r", as: "again") == .eperm)
                try volume.unlock()
                #expect(probe.call("head", name, 19) == .data("through the mapping"))
                #expect(probe.stat(name, "size") == .number(8192))
            }
        }

        @Test(
            "CX: expires its period after the last unlock, as the lock evicts; the next unlock renews it",
            arguments: User.usual)
        func expiry(user: User) throws {
            let volume = try MountedVolume(as: user, initArguments: ["--cx-period", "1h"])
            let probe = try volume.probe()
            try StateWalk.makeDirectory(of: .completeWhenUserInactive, with: probe)
            try StateWalk.makeDirectory(of: .completeUntilFirstUserAuthentication, with: probe)
            for round in 0..<2 {
                #expect(probe.open("CX/f", "rw", as: "fd") == .ok)
                #expect(probe.mmap("fd", 4, "rw", as: "map") == .ok)
                #expect(probe.touch("map", 4) == .data("cont"))
                try volume.lockNow()
                try volume.advance(seconds: 3599)
                // CX is still open. The page written here must be stored by the eviction.
                #expect(probe.readFile("CX/f") == .data("content of CX"), "round \(round)")
                #expect(probe.writeFile("CX/new\(round)", "made while locked") == .ok)
                #expect(probe.poke("map", at: 0, "cont") == .ok)
                try volume.advance(seconds: 1)
                #expect(probe.pread("fd", 4) == .eperm)
                #expect(probe.pwrite("fd", "x") == .eperm)
                #expect(probe.ftruncate("fd", 1) == .eperm)
                #expect(probe.touch("map", 4) == .sigbus)
                #expect(probe.open("CX/f", "r", as: "other") == .eperm)
                #expect(probe.writeFile("CX/late", "x") == .eperm)
                #expect(!probe.exists("CX/late"))
                #expect(probe.setClass("CX/f", "D") == .eperm, "I8: the old key is needed")
                #expect(probe.stat("CX/f", "size") == .number(13))
                #expect(probe.readFile("C/f") == .data("content of C"), "C stays")
                let status = try volume.ward("status", volume.mountPoint, "--json").output
                #expect(status.contains(#""state":"locked""#), "\(status)")
                // A lock does not bring CX back; the unlock does, for descriptors and mappings too.
                try volume.lockNow()
                #expect(probe.pread("fd", 4) == .eperm)
                try volume.unlock()
                #expect(probe.pread("fd", 4) == .data("cont"))
                #expect(probe.touch("map", 4) == .data("cont"))
                #expect(probe.readFile("CX/new\(round)") == .data("made while locked"))
                #expect(probe.call("munmap", "map") == .ok)
                #expect(probe.close("fd") == .ok)
            }
        }

        @Test(
            "CX: an unlocked volume is not inactive, and unlocking it again renews CX",
            arguments: User.usual)
        func renewal(user: User) throws {
            let volume = try MountedVolume(as: user, initArguments: ["--cx-period", "1h"])
            let probe = try volume.probe()
            try StateWalk.makeDirectory(of: .completeWhenUserInactive, with: probe)
            try volume.advance(seconds: 3000)
            // An unlock of an unlocked volume succeeds, and renews the period.
            try volume.unlock()
            try volume.lockNow()
            try volume.lockNow()
            try volume.advance(seconds: 3000)
            #expect(
                probe.readFile("CX/f") == .data("content of CX"), "6000 s after the first unlock")
            try volume.advance(seconds: 600)
            #expect(probe.open("CX/f", "r", as: "fd") == .eperm, "3600 s after the second")
            try volume.unlock()
            try volume.advance(seconds: 9000)
            #expect(probe.readFile("CX/f") == .data("content of CX"), "unlocked all the time")
            // The period is over when the lock comes, so CX closes with it.
            try volume.lockNow()
            #expect(probe.open("CX/f", "r", as: "fd") == .eperm)
            // A new period is in force at once.
            try volume.unlock()
            let changed = try volume.ward(
                "policy", "set", volume.mountPoint, "--cx-period", "10m", "--passcode-file",
                volume.passcodeFile)
            #expect(changed.succeeded, "\(changed.everything)")
            try volume.lockNow()
            #expect(probe.readFile("CX/f") == .data("content of CX"))
            try volume.advance(seconds: 600)
            #expect(probe.open("CX/f", "r", as: "fd") == .eperm)
            // Before the first unlock CX is like class A.
            try volume.unlock()
            try volume.reboot()
            #expect(probe.open("CX/f", "r", as: "fd") == .eperm)
            #expect(probe.writeFile("CX/before", "x") == .eperm)
            try volume.unlock()
            #expect(probe.readFile("CX/f") == .data("content of CX"))
        }
    }
}
