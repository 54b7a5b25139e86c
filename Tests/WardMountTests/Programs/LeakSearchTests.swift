import Foundation
import Testing

extension MountSuite {
    /// No content, name, link target, attribute name or value may be in the backing directory.
    @Suite struct LeakSearchTests {
        static let markers = [
            "MarkerInContent", "MarkerInFileName", "MarkerInDirectoryName", "MarkerInLinkTarget",
            "MarkerInLinkName", "MarkerInAttributeName", "MarkerInAttributeValue",
            "MarkerInLongName", "MarkerInSocketName", "MarkerInDeletedFile", "MarkerInMapping",
        ]

        @Test(
            "No marker is found in the backing directory, raw or encoded",
            arguments: User.usual,
            [4096, 512])
        func markers(user: User, pageSize: Int) throws {
            let volume = try MountedVolume(
                as: user, initArguments: ["--page-size", String(pageSize)])
            let probe = try volume.probe()
            for fileClass in FileClass.allCases {
                try StateWalk.makeDirectory(of: fileClass, with: probe)
                let top = fileClass.letter
                let many = String(repeating: "MarkerInContent ", count: 2000)
                #expect(probe.mkdir("\(top)/MarkerInDirectoryName") == .ok)
                let file = "\(top)/MarkerInDirectoryName/MarkerInFileName"
                #expect(probe.writeFile(file, many) == .ok)
                #expect(probe.writeFile("\(top)/short", "MarkerInContent") == .ok)
                #expect(probe.writeFile("\(top)/MarkerInFileName empty", "") == .ok)
                #expect(
                    probe.call("symlink", "to/MarkerInLinkTarget", "\(top)/MarkerInLinkName") == .ok
                )
                let long = "MarkerInLongName" + String(repeating: "x", count: 230)
                #expect(probe.writeFile("\(top)/\(long)", "MarkerInContent") == .ok)
                #expect(
                    probe.call(
                        "symlink", String(repeating: "MarkerInLinkTarget/", count: 100), "\(top)/l")
                        == .ok)
                for path in [file, "\(top)/MarkerInDirectoryName", "\(top)/MarkerInFileName empty"]
                {
                    #expect(
                        probe.setxattr(path, "user.MarkerInAttributeName", "MarkerInAttributeValue")
                            == .ok)
                    let value = String(repeating: "MarkerInAttributeValue", count: 30)
                    #expect(probe.setxattr(path, "user.MarkerInAttributeName.2", value) == .ok)
                }
                #expect(probe.call("socket", "\(top)/MarkerInSocketName") == .ok)
                #expect(probe.writeFile("\(top)/deleted", "MarkerInDeletedFile") == .ok)
                #expect(probe.open("\(top)/deleted", "r", as: "deleted \(top)") == .ok)
                #expect(probe.unlink("\(top)/deleted") == .ok)
                #expect(probe.open("\(top)/mapped", "rw+c", as: "fd") == .ok)
                #expect(probe.ftruncate("fd", 9000) == .ok)
                #expect(probe.mmap("fd", 9000, "rw", as: "map \(top)") == .ok)
                #expect(probe.poke("map \(top)", at: 4090, "MarkerInMapping") == .ok)
                #expect(probe.close("fd") == .ok)
            }
            try search(volume)
            try volume.enter(.locked)
            try search(volume)
            probe.kill()
            try volume.unmount()
            try search(volume)
        }

        private func search(_ volume: MountedVolume) throws {
            let environment = TestEnvironment.shared
            for directory in [volume.volume, volume.stateDirectory, volume.runtimeDirectory] {
                // In the runtime directory only names and the record are searched. The passcode is
                // a marker, too.
                let done = try Child.run(
                    volume.user.prefix + [
                        environment.python, environment.script("search.py"), directory,
                    ]
                        + Self.markers + [MountedVolume.passcode],
                    environment: volume.environment)
                #expect(done.succeeded, "\(done.everything)")
                #expect(done.output.contains("searched"), "\(done.everything)")
            }
        }

        @Test("The search finds what is there")
        func searchFinds() throws {
            let directory = try TestEnvironment.shared.makeDirectory("search")
            defer { try? FileManager.default.removeItem(atPath: directory) }
            let script = #"""
                cd "$1"
                printf MarkerInContent | base64 > base64
                printf 'x%s' MarkerInFileName | base64 | tr '+/' '-_' > base64url
                mkdir "$(printf 'xy%s' MarkerInDirectoryName | base64)"
                ln -s "$(printf MarkerInLinkTarget | od -An -tx1 | tr -d ' \n')" link
                printf MarkerInMapping | iconv -t UTF-16LE > utf16
                touch attribute; setfattr -n user.x -v "a MarkerInAttributeValue" attribute
                """#
            let environment = TestEnvironment.shared
            let made = try Child.run(
                ["bash", "-euc", script, "bash", directory], environment: environment.variables)
            #expect(made.succeeded, "\(made.everything)")
            let done = try Child.run(
                [environment.python, environment.script("search.py"), directory] + Self.markers,
                environment: environment.variables)
            #expect(done.status == 1)
            for (marker, how) in [
                ("MarkerInContent", "base64 at 0"), ("MarkerInFileName", "base64url at 1"),
                ("MarkerInDirectoryName", "base64 at 2"), ("MarkerInLinkTarget", "hex"),
                ("MarkerInMapping", "utf-16-le"), ("MarkerInAttributeValue", "raw"),
            ] {
                #expect(done.output.contains("\(marker), \(how)"), "\(done.output)")
            }
        }
    }
}
