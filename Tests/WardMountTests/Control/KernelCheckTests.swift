import Foundation
import Testing

extension MountSuite {
    /// The check at the mount that the kernel drops pages, and a kernel that keeps them.
    @Suite struct KernelCheckTests {
        private func standing(_ volume: MountedVolume) throws -> String? {
            try volume.status()["kernelCheck"] as? String
        }

        private func checks(_ volume: MountedVolume) throws -> [ControlEvent] {
            try ControlEvent.latest(of: volume).filter { $0.kind == "kernelCheck" }
        }

        private func unlock(_ volume: MountedVolume) throws -> Finished {
            try volume.ward("unlock", volume.mountPoint, "--passcode-file", volume.passcodeFile)
        }

        /// A volume on a kernel that keeps pages, in S1, or in S0 without a passcode.
        private func keepingPages(as user: User, passcode: String? = MountedVolume.passcode) throws
            -> MountedVolume
        {
            let volume = try MountedVolume(directoryOnlyAs: user, passcode: passcode)
            try volume.initialize()
            try volume.mount(extra: ["--keep-pages"])
            #expect(comesTrue(within: 60) { (try? standing(volume)) == "failed" })
            return volume
        }

        @Test(
            "an unlocked volume's kernel was checked, however it is mounted, and no program saw it",
            arguments: User.available,
            [[], ["--read-only"], ["--shared-storage"], ["--transport", "device"]])
        func checked(user: User, options: [String]) throws {
            let volume = try MountedVolume(as: user)
            try volume.unmount()
            try volume.mount(extra: options)
            try volume.unlock()
            #expect(try standing(volume) == "checked")
            #expect(try checks(volume).isEmpty)
            #expect(try volume.probe().list("") == .data(""))
            let text = try volume.ward("status", volume.mountPoint).output
            #expect(!text.contains("kernel"), "\(text)")
        }

        @Test("with other users in the mount it is the same")
        func allowOther() throws {
            guard User.available.contains(.root) else { return }
            let volume = try MountedVolume(as: .root, mountArguments: ["--allow-other"])
            #expect(try standing(volume) == "checked")
        }

        @Test(
            "L4: on a kernel that keeps pages an unlock is refused and says why, and costs no try",
            arguments: User.available)
        func keepsPages(user: User) throws {
            let volume = try MountedVolume(as: user)
            let before = try volume.probe()
            try StateWalk.makeDirectories(with: before)
            try volume.unmount()
            try volume.mount(extra: ["--keep-pages"])
            for _ in 1...2 {
                let refused = try unlock(volume)
                #expect(refused.status == 69, "\(refused.everything)")
                #expect(
                    refused.errors.contains("keeps mapped pages and pages of open files"),
                    "\(refused.everything)")
                #expect(refused.errors.contains("another kernel"), "\(refused.everything)")
            }
            let probe = try volume.probe()
            for fileClass in FileClass.allCases {
                let outcome = probe.open("\(fileClass.letter)/f", "r", as: fileClass.letter)
                #expect(outcome == (fileClass == .none ? .ok : .eperm), "\(fileClass)")
            }
            let status = try volume.status()
            #expect(status["kernelCheck"] as? String == "failed")
            #expect(status["state"] as? String == "beforeFirstUnlock")
            #expect(status["triesLeft"] as? Int == 10)
            let events = try checks(volume)
            #expect(events.count == 1, "\(events)")
            #expect(events.first?.fields["operation"] == "failed")
            let text = try volume.ward("status", volume.mountPoint).output
            #expect(text.contains("  kernel     the kernel (Linux "), "\(text)")
            #expect(!text.contains("ward unlock"), "\(text)")
            #expect(probe.close("D") == .ok)
            // A kernel that drops them opens everything again.
            try volume.remount()
            #expect(try volume.probe().readFile("A/f").succeeded)
        }

        @Test(
            "a mount that is to be unlocked at once does not stay on such a kernel",
            arguments: User.usual)
        func mountAndUnlock(user: User) throws {
            let volume = try MountedVolume(as: user)
            try volume.unmount()
            let done = try volume.ward(
                "mount", volume.volume, volume.mountPoint, "--keep-pages", "--passcode-file",
                volume.passcodeFile)
            #expect(done.status == 69, "\(done.everything)")
            #expect(done.errors.contains("nothing stays mounted"), "\(done.everything)")
            try volume.mount()
        }

        @Test(
            "without a passcode nothing is withheld on such a kernel, and none can be set",
            arguments: User.usual)
        func withoutPasscode(user: User) throws {
            let volume = try keepingPages(as: user, passcode: nil)
            #expect(try volume.probe().writeFile("f", "open to all") == .ok)
            try volume.writePasscode("a first one", to: volume.passcodeFile)
            let refused = try volume.ward(
                "passcode", "set", volume.mountPoint, "--passcode-file", volume.passcodeFile)
            #expect(refused.status == 69, "\(refused.everything)")
            #expect(try volume.status()["passcodeSet"] as? Bool == false)
        }

        @Test(
            "a passcode that is given up opens the files, and the promise goes with it",
            arguments: User.usual)
        func passcodeRemoved(user: User) throws {
            let volume = try keepingPages(as: user)
            let removed = try volume.ward(
                "passcode", "remove", volume.mountPoint, "--passcode-file", volume.passcodeFile)
            #expect(removed.succeeded, "\(removed.everything)")
            #expect(try volume.probe().writeFile("f", "open to all") == .ok)
        }

        @Test("a check that can't be made is said, and made again by the next unlock")
        func notChecked() throws {
            guard User.available.contains(.ordinaryUser) else { return }
            let volume = try MountedVolume(as: .ordinaryUser)
            try volume.shell("chmod 0 \"$MNT\"")
            try volume.unmount()
            try volume.mount()
            let refused = try unlock(volume)
            #expect(refused.status == 75, "\(refused.everything)")
            #expect(refused.errors.contains("can't read its file"), "\(refused.everything)")
            #expect(try standing(volume) == "notChecked")
            #expect(try checks(volume).first?.fields["operation"] == "notChecked")
            let text = try volume.ward("status", volume.mountPoint).output
            #expect(text.contains("  kernel     not checked: "), "\(text)")
            try volume.shell("chmod 700 \"$MNT\"")
            try volume.unlock()
            #expect(try standing(volume) == "checked")
        }

        @Test("a volume in use is not mounted so that it keeps pages")
        func forTestsOnly() throws {
            let volume = try MountedVolume(as: User.available[0])
            let real = volume.directory + "/real"
            try volume.unmount()
            let made = try volume.ward(
                "init", real, "--passcode-cost", "32768", "--passcode-file", volume.passcodeFile)
            #expect(made.succeeded, "\(made.everything)")
            let done = try volume.ward("mount", real, volume.mountPoint, "--keep-pages")
            #expect(done.status == 64, "\(done.everything)")
            #expect(done.errors.contains("for volumes of tests only"))
        }

        @Test("an unmount does not wait for the check, and the check does not stop it")
        func unmountAtOnce() throws {
            let volume = try MountedVolume(as: User.available[0])
            for _ in 1...5 {
                try volume.unmount()
                try volume.mount()
            }
        }
    }
}
