import Foundation
import Testing

@testable import WardContainers

/// The checks that need no volume; all others are in the tests that mount.
@Suite struct VolumeContainersTests {
    private func withDirectory(_ body: (String) throws -> Void) throws {
        var template = Array("/tmp/ward-containers-XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw POSIXError(.EIO) }
        let path = template.withUnsafeBufferPointer { String(cString: $0.baseAddress!) }
        defer { try? FileManager.default.removeItem(atPath: path) }
        try body(path)
    }

    @Test("another program's change is waited for, and not for ever")
    func busy() throws {
        try withDirectory { root in
            let top = root + "/Containers"
            try FileManager.default.createDirectory(
                atPath: top, withIntermediateDirectories: false)
            let other = open(top, O_RDONLY | O_DIRECTORY)
            defer { close(other) }
            #expect(flock(other, LOCK_EX) == 0)
            let containers = VolumeContainers(root: root, patience: .milliseconds(50))
            let id = try ContainerID("org.example.diary")
            let creating = #expect(throws: ContainerError.self) {
                try containers.create(id, .application, nil)
            }
            #expect(creating?.code == .busy)
            let removing = #expect(throws: ContainerError.self) { try containers.remove(id) }
            #expect(removing?.code == .busy)
            #expect(try FileManager.default.contentsOfDirectory(atPath: top).isEmpty)
        }
    }

    @Test("a directory that is no volume has no containers, and none can be made there")
    func noVolume() throws {
        try withDirectory { root in
            let containers = VolumeContainers(root: root)
            #expect(try containers.list().containers.isEmpty)
            let id = try ContainerID("org.example.diary")
            #expect(throws: ContainerError.self) {
                try containers.create(id, .application, nil)
            }
            #expect(throws: ContainerError.self) { try containers.remove(id) }
            #expect(VolumeContainers.container(at: root) == nil)
            let missing = VolumeContainers(root: root + "/missing")
            let error = #expect(throws: ContainerError.self) { try missing.list() }
            #expect(error?.code == .system(.noSuchFileOrDirectory))
        }
    }
}
