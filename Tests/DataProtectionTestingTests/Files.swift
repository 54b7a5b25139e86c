import DataProtectionTesting
import Foundation
import WardTestSupport

extension SimulatedDevice {
    /// A path inside the volume.
    func file(_ name: String) -> String { path + "/" + name }

    /// Writes a file; its directory exists ("A/diary").
    func write(_ text: String, to name: String) throws {
        try Data(text.utf8).write(to: URL(fileURLWithPath: file(name)))
    }

    func read(_ name: String) throws -> String {
        try String(contentsOf: URL(fileURLWithPath: file(name)), encoding: .utf8)
    }

    /// Makes a directory whose new files get this class.
    func makeDirectory(_ name: String, of protectionClass: ProtectionClass) throws {
        try FileManager.default.createDirectory(
            atPath: file(name), withIntermediateDirectories: true)
        try setClass(of: name, to: protectionClass)
    }

    func setClass(of name: String, to protectionClass: ProtectionClass) throws {
        let value = Array(protectionClass.name.utf8)
        guard setxattr(file(name), "user.ward.class", value, value.count, 0) == 0 else {
            throw CocoaError(.fileWriteUnknown)
        }
    }

    /// The process that serves the volume, from the record beside its socket.
    func daemonPID() throws -> pid_t? {
        let runtime = Leaks.directory(of: path) + "/run/ward"
        let names = try FileManager.default.contentsOfDirectory(atPath: runtime)
        guard let name = names.first(where: { $0.hasSuffix(".json") }),
            let record = FileManager.default.contents(atPath: runtime + "/" + name),
            let json = try JSONSerialization.jsonObject(with: record) as? [String: Any]
        else { return nil }
        return (json["pid"] as? Int).map(pid_t.init)
    }

    /// Runs a shell command in the volume, so that other processes use it. Returns its exit code.
    @discardableResult
    func shell(_ script: String) throws -> Int32 {
        try Child.run(
            ["env", "-C", path, "sh", "-c", script],
            environment: ProcessInfo.processInfo.environment
        ).status
    }
}

/// setxattr(2), which Swift's module Glibc does not declare.
@_silgen_name("setxattr") private func setxattr(
    _ path: UnsafePointer<CChar>, _ name: UnsafePointer<CChar>, _ value: UnsafeRawPointer,
    _ size: Int, _ flags: Int32
) -> Int32
