import Foundation
import Testing

extension MountSuite {
    /// `ward demo`, which shows ward's functions on a volume of its own.
    @Suite struct DemoTests {
        @Test(
            "It removes what it made, also where its reader goes away", arguments: User.usual)
        func readerGone(user: User) throws {
            let place = try MountedVolume(directoryOnlyAs: user)
            place.variables["TMPDIR"] = place.directory
            try place.shell(
                """
                { '\(TestEnvironment.shared.ward)' demo 2>"$OUT/errors" || echo $? >"$OUT/status"; } |
                    head -n 1 >/dev/null
                test "$(cat "$OUT/status")" = 141
                grep -q 'the demo was interrupted; everything it made was removed' "$OUT/errors"
                ls '\(place.directory)' | { ! grep ward-demo; }
                """)
        }
    }
}
