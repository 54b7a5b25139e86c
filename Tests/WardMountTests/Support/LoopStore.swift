import Foundation
import Testing

/// A backing store for one test: ext4 on a loop device, which can hang, vanish and come back. Needs
/// root.
final class LoopStore {
    let path: String
    /// A file system with just enough room for the image.
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

    /// Freezes or unfreezes the store; repeated calls do nothing.
    func freeze(_ wanted: Bool) throws {
        guard wanted != isFrozen else { return }
        try must("fsfreeze \(wanted ? "--freeze" : "--unfreeze") \(path)")
        isFrozen = wanted
    }

    /// From now on the disk answers only errors. Its image is put aside, there is no room to write,
    /// and cached pages of its files are dropped.
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

    /// `umount -l`: no new program finds the store, and programs that use it go on.
    func detach() throws { try must("umount -l \(path)") }

    /// Puts the saved image, or the present one, in its place again. No program may use the store.
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
