import Foundation
import Testing

/// A backing store of its own: ext4 on a loop device, that can hang, vanish and come back. Needs
/// root.
final class LoopStore {
    let path: String
    /// Where its image is: a file system with just enough room.
    private var disk: String { path + ".disk" }
    private let environment = TestEnvironment.shared.variables

    init(owner user: User) throws {
        path = try TestEnvironment.shared.makeDirectory("store")
        let made = try run(
            """
            mkdir \(disk)
            mount -t tmpfs -o size=68M none \(disk)
            truncate -s 64M \(disk)/image
            mkfs.ext4 -q -b 4096 -m 0 \(disk)/image
            mount -o loop \(disk)/image \(path)
            mkdir \(path)/volume; chown \(user.userID) \(path)/volume
            """)
        try #require(made.succeeded, "a store of its own needs a loop device: \(made.everything)")
    }

    private func run(_ script: String) throws -> Finished {
        try Child.run(["sh", "-euc", script], environment: environment)
    }

    private func must(_ script: String) throws {
        let done = try run(script)
        try #require(done.succeeded, "\(script): \(done.everything)")
    }

    private var isFrozen = false

    /// As often as wanted.
    func freeze(_ wanted: Bool) throws {
        guard wanted != isFrozen else { return }
        try must("fsfreeze \(wanted ? "--freeze" : "--unfreeze") \(path)")
        isFrozen = wanted
    }

    /// The disk answers nothing but errors from now on: what it has is put aside, and there is no
    /// room to write. What memory held of files below it, and need not, is forgotten.
    func vanish() throws {
        try must(
            """
            sync -f \(path)
            cp --sparse=always \(disk)/image \(path).saved
            \(TestEnvironment.shared.python) - \(path) <<'PYTHON'
            import os, sys
            for folder, _, names in os.walk(sys.argv[1]):
                for name in names:
                    path = os.path.join(folder, name)
                    if os.path.isfile(path) and not os.path.islink(path):
                        file = os.open(path, os.O_RDONLY)
                        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                        os.close(file)
            PYTHON
            truncate -s 0 \(disk)/image
            head -c 80M /dev/zero > \(disk)/ballast || true
            """)
    }

    /// As `umount -l`: nobody finds it, and who is inside goes on.
    func detach() throws { try must("umount -l \(path)") }

    /// What was put aside, or what is there, in its place again. Nobody uses the store.
    func comeBack() throws {
        try must(
            """
            ! mountpoint -q \(path) || umount -l \(path)
            rm -f \(disk)/ballast
            ! test -e \(path).saved || cp --sparse=always \(path).saved \(disk)/image
            mount -o loop \(disk)/image \(path)
            """)
    }

    deinit {
        _ = try? run(
            """
            ! mountpoint -q \(path) || fsfreeze --unfreeze \(path) 2>/dev/null || true
            umount -l \(path) || true
            umount -l \(disk) || true
            rm -rf \(path) \(disk) \(path).saved
            """)
    }
}
