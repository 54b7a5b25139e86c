import Foundation
import Testing

extension MountSuite {
    /// A backing store whose disk fails, or that is unmounted.
    @Suite(.enabled(if: geteuid() == 0)) struct GoneStoreTests {
        private static let content = String(repeating: "written and synced ", count: 2000)

        private func writeSynced(_ probe: Probe, _ name: String) {
            #expect(probe.open(name, "rw+c", as: name) == .ok)
            #expect(probe.write(name, Self.content).succeeded)
            #expect(probe.fsync(name) == .ok)
            #expect(probe.close(name) == .ok)
        }

        /// The next mount is clean: all synced files are there, and no damage.
        private func expectWhole(_ volume: MountedVolume, _ names: [String]) throws {
            let probe = try volume.probe()
            for name in names {
                #expect(probe.readFile(name) == .data(Self.content), "\(name)")
            }
            #expect(probe.writeFile("after", "after") == .ok)
            #expect(probe.readFile("after") == .data("after"))
            let damage = try ControlEvent.latest(of: volume).filter {
                $0.kind == "integrityFailure" || $0.kind == "lost"
            }
            #expect(damage.isEmpty, "\(damage)")
        }

        @Test(
            "A disk that fails: programs get errors, the daemon lives, an unmount works, and the next mount is clean",
            arguments: User.usual)
        func failingDisk(user: User) throws {
            let store = try LoopStore(owner: user)
            let volume = try MountedVolume(as: user, backing: store.path + "/volume")
            writeSynced(try volume.probe(), "cold")
            // The kernel has none of its pages.
            try volume.remount()
            let probe = try volume.probe()
            writeSynced(probe, "warm")
            #expect(probe.open("warm", "rw", as: "open") == .ok)
            try store.vanish()

            #expect(probe.readFile("cold") == .failure("EIO"))
            // Refused at once if an old page must be read, else at the sync.
            let written = probe.pwrite("open", "other", at: 100_000)
            let synced = probe.fsync("open")
            let told = written.succeeded ? synced : written
            #expect(["EIO", "EROFS"].contains(told.text), "\(written), \(synced)")
            // Each call gets an answer.
            for outcome in [probe.mkdir("directory"), probe.writeFile("new", "new")] {
                #expect(outcome.text != "probe: gone" && !outcome.text.contains("no answer"))
            }
            let status = try volume.ward("status", volume.mountPoint, seconds: 20)
            #expect(status.succeeded, "\(status.everything)")
            try volume.lockNow()
            probe.kill()
            let unmounted = try volume.ward("unmount", volume.mountPoint, seconds: 60)
            #expect(!unmounted.timedOut, "\(unmounted.everything)")
            #expect(TestEnvironment.shared.mounts().allSatisfy { $0 != volume.mountPoint })

            try store.comeBack()
            try volume.mount()
            try volume.unlock()
            try expectWhole(volume, ["cold", "warm"])
        }

        @Test(
            "A store that is unmounted below a mount: who is inside goes on, and the next mount is clean",
            arguments: User.usual)
        func detachedStore(user: User) throws {
            let store = try LoopStore(owner: user)
            let volume = try MountedVolume(as: user, backing: store.path + "/volume")
            let probe = try volume.probe()
            writeSynced(probe, "before")
            try store.detach()
            writeSynced(probe, "behind")
            #expect(probe.mkdir("directory") == .ok)
            #expect(probe.readFile("before") == .data(Self.content))
            probe.kill()
            let unmounted = try volume.ward("unmount", volume.mountPoint, seconds: 60)
            #expect(unmounted.succeeded, "\(unmounted.everything)")
            try store.comeBack()
            try volume.mount()
            try volume.unlock()
            try expectWhole(volume, ["before", "behind"])
            let unclean = try ControlEvent.latest(of: volume).filter {
                $0.description.contains("cleanly")
            }
            #expect(unclean.isEmpty, "\(unclean)")
        }
    }
}

extension MountedVolume {
    /// Mounts as soon as the earlier daemon has released the volume.
    func mountWhenFree() throws {
        var refusal: (any Error)?
        let isMounted = comesTrue {
            do {
                try mount()
                return true
            } catch {
                refusal = error
                return false
            }
        }
        if !isMounted, let refusal { throw refusal }
    }
}
