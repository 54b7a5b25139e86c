import Testing

@testable import WardSystem

@Suite struct MountTableTests {
    @Test("the mount table is read with escapes and optional fields")
    func mountTable() {
        let text = """
            22 28 0:20 / /sys rw,nosuid shared:7 - sysfs sysfs rw
            40 28 0:39 / /home/me/my\\040files rw shared:9 master:2 - fuse.ward /vol\\134x rw,user_id=0
            damaged
            """
        let table = MountTable(parsing: Array(text.utf8))
        let entries = table.entries
        #expect(entries.count == 2)
        #expect(
            entries.last
                == MountTable.Entry(
                    deviceMinor: 39, mountPoint: "/home/me/my files", type: "fuse.ward",
                    source: "/vol\\x", id: 40, root: "/", ownerID: 0))
        #expect(table.covering("/home/me/my files/a")?.id == 40)
        #expect(table.covering("/home/me/my files")?.id == 40)
        #expect(table.covering("/home/me/my filesystem") == nil)
    }
}
