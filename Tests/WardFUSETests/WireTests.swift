import CWardLinux
import Glibc
import Testing
import WardSystem
import WardVolume

@testable import WardFUSE

@Suite("conversions to and from the protocol")
struct WireTests {
    // ENOSYS would switch the opcode off for good; the kernel takes only 1...511; EMFILE is the
    // daemon's own limit.
    private static let errorTable: [(Int32, Int32)] = [
        (ENOENT, -ENOENT), (EPERM, -EPERM), (ENOSPC, -ENOSPC), (ENOSYS, -EOPNOTSUPP), (0, -EIO),
        (-5, -EIO), (512, -EIO), (524, -EIO), (EMFILE, -ENFILE), (ENFILE, -ENFILE),
    ]

    @Test("errors for the kernel", arguments: errorTable)
    func errors(_ error: Int32, _ expected: Int32) {
        #expect(Wire.errorNumber(Errno(rawValue: error)) == expected)
    }

    @Test("device numbers as new_encode_dev makes them")
    func devices() {
        #expect(Wire.device(1, 3) == 0x103)
        #expect(Wire.device(8, 0x1_2345) == 0x1230_0845)
    }

    @Test("SETATTR says which attributes it means")
    func setAttributes() {
        var request = fuse_setattr_in()
        request.valid = FATTR_MODE | FATTR_SIZE | FATTR_ATIME | FATTR_MTIME | FATTR_MTIME_NOW
        request.mode = 0o100640
        request.size = 5
        request.atime = UInt64(bitPattern: -1)
        request.atimensec = 7
        let change = AttributeChange(request)
        #expect(change.mode == 0o640)
        #expect(change.sizeBytes == 5)
        #expect(change.uid == nil && change.gid == nil && !change.dropPrivilegeBits)
        guard case .at(let access)? = change.access else {
            Issue.record("access time is given")
            return
        }
        #expect(access.tv_sec == -1 && access.tv_nsec == 7, "before 1970")
        guard case .now? = change.modification else {
            Issue.record("modification time is now")
            return
        }
    }
}
