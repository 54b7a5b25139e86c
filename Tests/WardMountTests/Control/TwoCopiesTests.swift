import Foundation
import Testing

extension MountSuite {
    /// Two copies of a volume mounted side by side: a command acts on the mount that it was given.
    @Suite struct TwoCopiesTests {
        static let orders = [false, true].flatMap { first in
            User.available.map { ($0, first) }
        }

        @Test(
            "lock, unlock, status, events and reboot reach the copy that was named",
            arguments: TwoCopiesTests.orders)
        func eachItsOwn(user: User, copyFirst: Bool) throws {
            let pair = try VolumePair(as: user, copyFirst: copyFirst)
            #expect(try pair.isOpen() == [true, true])
            for (index, place) in pair.places.enumerated() {
                let locked = [index == 0, index == 1].map { !$0 }
                let said = try pair.ward("lock", "--now", place)
                #expect(said == "\(place): locked\n")
                #expect(try pair.isOpen() == locked)
                #expect(try pair.states() == locked.map { $0 ? "unlocked" : "locked" })
                let events = try pair.ward("events", "--last", "100", "--json", place)
                #expect(events.contains(#""kind":"locked""#))
                #expect(events.contains(place) && !events.contains(pair.places[1 - index]))
                let again = try pair.ward(
                    "unlock", place, "--passcode-file", pair.original.passcodeFile)
                #expect(again == "\(place): unlocked\n")
                #expect(try pair.isOpen() == [true, true])
                try pair.ward("reboot", place)
                #expect(
                    try pair.states() == locked.map { $0 ? "unlocked" : "beforeFirstUnlock" })
                try pair.ward("unlock", place, "--passcode-file", pair.original.passcodeFile)
            }
            // The same by their backing directories.
            try pair.ward("lock", "--now", pair.copy)
            #expect(try pair.isOpen() == [true, false])
            // Other mounts of this user may be there, and may not answer.
            let all = try pair.original.ward("status", "--json").output
            for place in pair.places { #expect(all.contains(#""mountpoint":"\#(place)""#)) }
            try pair.ward("unmount", pair.copyMountPoint)
        }

        @Test(
            "unmount reaches the copy that was named, in every order",
            arguments: TwoCopiesTests.orders, [false, true])
        func unmount(order: (User, Bool), endsCopyFirst: Bool) throws {
            let pair = try VolumePair(as: order.0, copyFirst: order.1)
            let (first, second) = endsCopyFirst ? (1, 0) : (0, 1)
            try pair.ward("unmount", pair.places[first])
            let left = TestEnvironment.shared.mounts()
            #expect(!left.contains(pair.places[first]) && left.contains(pair.places[second]))
            #expect(try pair.isOpen()[second])
            try pair.ward("lock", "--now", pair.places[second])
            #expect(try pair.isOpen() == [false, false])
            try pair.ward("unmount", pair.places[second])
            let runtime = pair.original.runtimeDirectory + "/ward"
            #expect(try FileManager.default.contentsOfDirectory(atPath: runtime) == [])
        }

        @Test(
            "a daemon that is killed takes nothing of the other copy's with it",
            arguments: User.available)
        func killed(user: User) throws {
            let pair = try VolumePair(as: user, copyFirst: false)
            let daemon = try pair.daemon(of: pair.copyMountPoint)
            kill(daemon, SIGKILL)
            try MountedVolume.waitForEnd(of: daemon)
            #expect(try pair.ward("status", pair.original.mountPoint).contains("unlocked"))
            try pair.ward("lock", "--now", pair.original.mountPoint)
            #expect(try pair.isOpen() == [false, false])
            let dead = try pair.original.ward("lock", "--now", pair.copyMountPoint)
            #expect(dead.status == 69 && dead.errors.contains("its daemon died"), "\(dead)")
            // Mounted again; the other daemon still answers for its own mount.
            try pair.mountCopy()
            #expect(try pair.states() == ["locked", "beforeFirstUnlock"])
            try pair.ward("unmount", pair.copyMountPoint)
            #expect(try pair.ward("status", pair.original.mountPoint).contains("locked"))
        }
    }
}
