import Foundation
import Glibc
import Testing
import WardFormat
import WardSystem

@testable import WardKeys

extension MountSuite {
    /// A policy that was changed with the device's files alone, in a volume of format 2.
    @Suite struct ForgedPolicyRowTests {
        /// Gives the volume a policy that keeps everything open for long.
        private func forge(_ volume: MountedVolume) throws {
            let state = volume.stateDirectory + "/ward"
            let store = try KeybagStore(volumePath: volume.volume, stateRoot: state)
            let (context, keybag) = (store.context, store.published.withLock { $0.keybag })
            let secret = try context.hierarchy.deviceSecret(
                effaceable: try store.currentEffaceable())
            let policyKey = try context.hierarchy.policyKey(secret)
            let before = try #require(
                try context.policyBytes(of: keybag, policyKey: policyKey))
            var policy = store.policy
            policy.gracePeriod = .seconds(3600)
            policy.userInactivePeriod = .seconds(30 * 86400)
            let forged = policy.serialized + before.dropFirst(KeybagPolicy.bytes)
            try store.writeKeybags(
                try context.finish(keybag, forged, policyKey: policyKey))
            let owner = "\(volume.user.userID):\(volume.user.groupID)"
            let given = try Child.run(
                ["chown", "-R", owner, volume.volume, volume.stateDirectory],
                environment: TestEnvironment.shared.variables)
            #expect(given.succeeded, "\(given.everything)")
        }

        private func expect(_ done: Finished, has parts: String...) {
            for part in parts {
                #expect(done.output.contains(part), "\(part): \(done.everything)")
            }
        }

        @Test("it counts until the first unlock; then an event, and the usual values")
        func forged() throws {
            let volume = try MountedVolume(as: User.available[0])
            try volume.unmount()
            try forge(volume)
            // Without --grace, so that the policy says how long it is.
            let mounted = try volume.ward(
                "mount", volume.volume, volume.mountPoint, "--manual-clock")
            #expect(mounted.succeeded, "\(mounted.everything)")
            expect(
                try volume.ward("status", volume.mountPoint, "--json"),
                has: #""graceSeconds":3600"#, #""policyForged":false"#)
            for _ in 0..<2 {
                try volume.unlock()
                expect(
                    try volume.ward("status", volume.mountPoint, "--json"),
                    has: #""graceSeconds":10.0,"#, #""policyForged":true"#,
                    #""userInactiveRemainingSeconds":86400.0,"#)
                try volume.lockNow()
            }
            let said = "the policy was changed without the passcode"
            expect(try volume.ward("status", volume.mountPoint), has: said)
            let events = try volume.ward("events", volume.mountPoint, "--json").output
            let told = events.split(separator: "\n").filter { $0.contains(said) }
            #expect(told.count == 1 && told[0].contains("integrityFailure"), "\(events)")
            expect(
                try volume.ward("policy", volume.mountPoint, "--json"),
                has: #""policyForged":true"#, #""graceSeconds":10.0,"#,
                #""userInactiveSeconds":86400"#)
            let check = try volume.ward("check", volume.mountPoint)
            #expect(check.status == 14 && check.output.contains(said), "\(check.everything)")
            // Set again, it is the owner's.
            let set = try volume.ward(
                "policy", "set", volume.mountPoint, "--grace", "20s", "--passcode-file",
                volume.passcodeFile)
            #expect(set.succeeded, "\(set.everything)")
            expect(
                try volume.ward("status", volume.mountPoint, "--json"),
                has: #""graceSeconds":20.0,"#, #""policyForged":false"#)
            try volume.unlock()
            #expect(try volume.ward("unmount", volume.mountPoint).succeeded)
            try volume.mount()
            try volume.unlock()
            expect(
                try volume.ward("status", volume.mountPoint, "--json"),
                has: #""policyForged":false"#)
        }

        @Test("ward check finds it with the passcode, and stores the stronger values")
        func checked() throws {
            let volume = try MountedVolume(as: User.available[0])
            try volume.unmount()
            try forge(volume)
            for (arguments, status) in [
                (["--locked"], Int32(0)), ([], 14), (["--repair"], 15), ([], 0),
            ] {
                let secret =
                    arguments == ["--locked"] ? [] : ["--passcode-file", volume.passcodeFile]
                let done = try Child.run(
                    volume.user.prefix + [TestEnvironment.shared.ward, "check", volume.volume]
                        + arguments + secret, environment: volume.environment)
                #expect(done.status == status, "\(arguments): \(done.everything)")
            }
            expect(
                try volume.ward("policy", volume.volume, "--json"),
                has: #""graceSeconds":10.0,"#, #""userInactiveSeconds":86400"#)
        }
    }
}
