import Foundation
import Testing

extension MountSuite {
    /// What requests come by: `ward mount --transport`.
    @Suite struct TransportTests {
        private static let isOffered =
            (try? String(
                contentsOfFile: "/sys/module/fuse/parameters/enable_uring", encoding: .utf8))
            == "Y\n"

        private func transport(_ volume: MountedVolume) throws -> String? {
            let done = try volume.ward("status", volume.mountPoint, "--json")
            let status = try JSONSerialization.jsonObject(with: Data(done.output.utf8))
            return (status as? [String: Any])?["transport"] as? String
        }

        @Test("the device can always be asked for", arguments: User.available)
        func device(user: User) throws {
            let volume = try MountedVolume(as: user, mountArguments: ["--transport", "device"])
            #expect(try transport(volume) == "device")
        }

        @Test(
            "io_uring is used where it is offered, and refused with the next step where it is not",
            arguments: User.available)
        func ring(user: User) throws {
            let volume = try MountedVolume(as: user, mountArguments: ["--transport", "device"])
            try volume.unmount()
            let done = try volume.ward(
                "mount", volume.volume, volume.mountPoint, "--transport", "io-uring")
            guard !Self.isOffered else {
                #expect(done.succeeded, "\(done.everything)")
                #expect(try transport(volume) == "io-uring")
                #expect(try volume.ward("status", volume.mountPoint).output.contains("by io_uring"))
                #expect(try volume.ward("unmount", volume.mountPoint).succeeded)
                return
            }
            #expect(done.status == 74, "\(done.everything)")
            #expect(
                done.everything.contains("the kernel does not offer FUSE over io_uring"),
                "\(done.everything)")
            #expect(done.everything.contains("enable_uring"), "\(done.everything)")
            // Nothing is left of it.
            try volume.mount()
            #expect(try transport(volume) == "device")
        }

        @Test("auto is io_uring where root has turned it on", arguments: User.available)
        func auto(user: User) throws {
            let volume = try MountedVolume(as: user, mountArguments: ["--transport", "auto"])
            #expect(try transport(volume) == (Self.isOffered ? "io-uring" : "device"))
        }

        @Test("$WARD_TRANSPORT is the default, and a word that it can't be is named")
        func variable() throws {
            let volume = try MountedVolume(
                as: User.available[0], mountArguments: ["--transport", "device"])
            try volume.unmount()
            let done = try Child.run(
                [TestEnvironment.shared.ward, "mount", volume.volume, volume.mountPoint],
                environment: volume.environment.merging(["WARD_TRANSPORT": "pigeon"]) { $1 })
            #expect(done.status == 64)
            #expect(
                done.everything.contains(
                    "pigeon: $WARD_TRANSPORT is to be one of auto, device, io-uring"),
                "\(done.everything)")
            try volume.mount()
        }
    }
}
