import Foundation
import Glibc
import Testing
import WardTestSupport

extension MountSuite {
    /// A class that nothing vouches for, through the mount (docs/format.md §6.2).
    @Suite struct SealRowTests {
        private func append(_ path: String, _ text: String) throws {
            // A child of another test must not inherit it.
            let file = Glibc.open(path, O_WRONLY | O_APPEND | O_CLOEXEC)
            guard file >= 0 else { throw SupportError("cannot open \(path): errno \(errno)") }
            defer { close(file) }
            let written = Array(text.utf8).withUnsafeBytes {
                write(file, $0.baseAddress!, $0.count)
            }
            guard written == text.utf8.count else {
                throw SupportError("cannot write \(path): errno \(errno)")
            }
        }

        @Test("mail that came before a crash can be read, and gets a new key by ward class set")
        func crashBeforeTheUnlock() throws {
            let volume = try MountedVolume(as: User.available[0])
            let inbox = volume.mountPoint + "/inbox"
            try FileManager.default.createDirectory(
                atPath: inbox, withIntermediateDirectories: false)
            #expect(try volume.ward("class", "set", "B", inbox).succeeded)
            try volume.remount()
            try volume.reboot()
            let mail = inbox + "/mail"
            try Data("received".utf8).write(to: URL(fileURLWithPath: mail))
            try volume.kill()
            volume.detach()

            try volume.mount()
            try volume.unlock()
            #expect(try String(contentsOfFile: mail, encoding: .utf8) == "received")
            #expect(throws: (any Error).self) { try append(mail, " more") }
            let refused = try volume.ward("class", "set", "B", mail)
            #expect(
                refused.status == 74 && refused.errors.contains("ward class set --rekey B "),
                "\(refused.everything)")
            let events = try volume.ward("events", volume.mountPoint).output
            #expect(events.contains("/inbox/mail, nothing vouches for its class B"), "\(events)")
            let accepted = try volume.ward("class", "set", "--rekey", "B", mail)
            #expect(accepted.succeeded, "\(accepted.everything)")
            try append(mail, " and more")
            try volume.remount()
            try append(mail, " again")
            #expect(
                try String(contentsOfFile: mail, encoding: .utf8) == "received and more again")
            let check = try volume.ward("check", volume.mountPoint)
            #expect(check.succeeded, "\(check.everything)")
        }

        @Test("an unmount just after the first unlock leaves nothing without its seal")
        func unmountAtOnce() throws {
            let volume = try MountedVolume(as: User.available[0])
            let inbox = volume.mountPoint + "/inbox"
            try FileManager.default.createDirectory(
                atPath: inbox, withIntermediateDirectories: false)
            #expect(try volume.ward("class", "set", "B", inbox).succeeded)
            try volume.reboot()
            for number in 0..<300 {
                try Data("received".utf8).write(to: URL(fileURLWithPath: inbox + "/\(number)"))
            }
            try volume.unlock()
            try volume.remount()
            for number in 0..<300 { try append(inbox + "/\(number)", " more") }
            let check = try volume.ward("check", volume.mountPoint)
            #expect(check.succeeded, "\(check.everything)")
        }

        @Test("mail that came after ward reboot gets its seal at the next unlock")
        func rebootWithoutUnmount() throws {
            let volume = try MountedVolume(as: User.available[0])
            let inbox = volume.mountPoint + "/inbox"
            try FileManager.default.createDirectory(
                atPath: inbox, withIntermediateDirectories: false)
            #expect(try volume.ward("class", "set", "B", inbox).succeeded)
            for round in 0..<2 {
                try volume.reboot()
                try Data("received".utf8).write(to: URL(fileURLWithPath: inbox + "/\(round)"))
                try volume.unlock()
            }
            // A check reports what has no seal, unless this mount still has the note.
            try volume.remount()
            for round in 0..<2 { try append(inbox + "/\(round)", " more") }
            let check = try volume.ward("check", volume.mountPoint)
            #expect(check.succeeded, "\(check.everything)")
        }
    }
}
