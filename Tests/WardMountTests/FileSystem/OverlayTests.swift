import Foundation
import Testing

extension MountSuite {
    /// An overlay whose upper layer is in a mount (Documentation/filesystems/overlayfs.rst).
    @Suite(.enabled(if: geteuid() == 0)) struct OverlayTests {
        @Test("Removing, renaming, replacing and copying up, and the same after a remount")
        func upperLayer() throws {
            let volume = try MountedVolume(as: .root)
            let mount = """
                mkdir -p "$OUT/merged"
                mount -t overlay overlay -o "lowerdir=$OUT/lower,upperdir=$MNT/upper,workdir=$MNT/work" "$OUT/merged"
                cd "$OUT/merged"
                """
            // In a mount namespace of its own, so that no mount is left.
            try volume.shell(
                """
                mkdir -p "$OUT/lower/d/deep" "$OUT/lower/gone" "$MNT/upper" "$MNT/work"
                for i in a b c d/e d/deep/f gone/g; do echo "lower $i" >"$OUT/lower/$i"; done
                long=$(printf 'n%.0s' $(seq 200)); echo long >"$OUT/lower/$long"
                ln -s somewhere "$OUT/lower/oldlink"; mkfifo "$OUT/lower/oldpipe"
                unshare -m bash -euo pipefail <<'INNER'
                \(mount)
                mv oldlink newlink; mv oldpipe newpipe
                rm a
                mv b moved
                mv nnn* short
                echo more >>c
                rm -r gone; mkdir gone; echo new >gone/new
                mv d/e d/renamed
                ln -s c link; setfattr -n trusted.note -v n c
                mkdir made; mv made/ remade; echo x >remade/x
                mv -T remade gone 2>/dev/null && exit 1
                rm gone/new; mv -T remade gone
                INNER
                """)
            for round in ["before", "after"] {
                try volume.shell(
                    """
                    unshare -m bash -euo pipefail <<'INNER'
                    \(mount)
                    test ! -e a; test ! -e b; test "$(cat moved)" = "lower b"
                    test "$(cat short)" = long; test "$(ls | grep -c '^nnn')" = 0
                    test "$(tail -n 1 c)" = more; test "$(getfattr --only-values -n trusted.note c)" = n
                    test "$(readlink newlink)" = somewhere; test -p newpipe; test ! -L oldlink
                    test "$(ls gone)" = x; test ! -e d/e; test "$(cat d/renamed)" = "lower d/e"
                    test "$(cat d/deep/f)" = "lower d/deep/f"; test "$(readlink link)" = c
                    INNER
                    test "$(stat -c %F:%t:%T "$MNT/upper/b")" = "character special file:0:0"
                    """)
                if round == "before" { try volume.remount() }
            }
            let checked = try volume.ward("check", volume.mountPoint)
            #expect(checked.succeeded, "\(checked.everything)")
        }
    }
}
