import Testing

@testable import WardFUSE

@Suite("options and messages")
struct MountingTests {
    @Test("options for fusermount3 escape what it would split at")
    func helperOptions() {
        var options = FUSEMountOptions(mountPoint: "/m", fileSystemName: "/a,b\\c")
        options.allowOther = true
        options.readOnly = true
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
