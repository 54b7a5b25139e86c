import Testing

@testable import WardFUSE

@Suite("mount tables, options and messages")
struct MountingTests {
    @Test("the mount table is read with escapes and optional fields")
    func mountTable() {
        let text = """
            22 28 0:20 / /sys rw,nosuid shared:7 - sysfs sysfs rw
            40 28 0:39 / /home/me/my\\040files rw shared:9 master:2 - fuse.ward /vol\\134x rw,user_id=0
            damaged
            """
        let entries = MountTable.parse(Array(text.utf8))
        #expect(entries.count == 2)
        #expect(
            entries.last
                == MountEntry(
                    deviceMinor: 39, mountPoint: "/home/me/my files", type: "fuse.ward",
                    source: "/vol\\x"))
    }

    @Test("options for fusermount3 escape what it would split at")
    func helperOptions() {
        let options = FUSEMountOptions(
            mountPoint: "/m", fileSystemName: "/a,b\\c", allowOther: true, readOnly: true)
        #expect(
            Mounting.helperOptions(options) == [
                "fsname=/a\\,b\\\\c", "subtype=ward", "default_permissions", "allow_other", "ro",
            ])
    }

    @Test("only the line itself allows others")
    func allowOther() {
        #expect(Mounting.allowsOther(Array("a\n user_allow_other \n".utf8)))
        #expect(!Mounting.allowsOther(Array("#user_allow_other\n".utf8)))
    }

    @Test("fusermount3's complaint is its last line without its name")
    func complaint() {
        let text = Array("warning\nfusermount3: user has no write access to mountpoint /m\n".utf8)
        #expect(Fusermount.lastLine(text) == "user has no write access to mountpoint /m")
    }
}
