import Foundation
import Testing

extension MountSuite {
    /// Disk images with holes, and the programs that copy them by `SEEK_DATA` and `SEEK_HOLE`.
    @Suite struct SparseImageTests {
        @Test(
            "qemu-img converts and compares sparse images as beside the mount",
            arguments: User.usual, ["4096", "512"])
        func images(user: User, pageBytes: String) throws {
            let volume = try MountedVolume(
                as: user, initArguments: pageBytes == "512" ? ["--page-size", "512"] : [])
            try volume.shell(
                """
                '\(TestEnvironment.shared.python)' - "$MNT/image" "$OUT/image" <<'PYTHON'
                import os, random, sys
                random.seed(7)
                pieces = [(random.randrange(0, (8 << 20) - (1 << 16)), random.randrange(1, 1 << 16)) for _ in range(25)]
                for path in sys.argv[1:]:
                    random.seed(9)
                    fd = os.open(path, os.O_RDWR | os.O_CREAT)
                    os.ftruncate(fd, 8 << 20)
                    for offset, count in pieces:
                        os.pwrite(fd, random.randbytes(count), offset)
                PYTHON
                cd "$MNT"
                qemu-img compare -q -f raw -F raw image "$OUT/image"
                for target in "$MNT" "$OUT"; do
                    qemu-img convert -f raw -O qcow2 image "$target/i.qcow2"
                    qemu-img compare -q -f raw -F qcow2 "$OUT/image" "$target/i.qcow2"
                    qemu-img convert -f raw -O raw -S 4k image "$target/i.raw"
                    cmp "$target/i.raw" "$OUT/image"
                    qemu-img convert -T none -t none -f raw -O raw image "$target/direct.raw"
                    cmp "$target/direct.raw" "$OUT/image"
                    qemu-img convert -T none -t none -f raw -O raw "$target/i.raw" "$target/again.raw"
                    cmp "$target/again.raw" "$OUT/image"
                done
                qemu-img map --output=json -f raw image >"$OUT/map"
                grep -q '"data": false' "$OUT/map"
                """)
        }
    }
}
