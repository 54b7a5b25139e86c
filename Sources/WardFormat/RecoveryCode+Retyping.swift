import WardSystem

extension RecoveryCode {
    /// Replaces one group (1 to 13) of a typed code. Returns nil if there is no such group, or if
    /// the code or the group has a wrong length. Throws `ENOMEM`.
    public static func retyping(
        group: Int, as typed: borrowing SecretBytes, in text: borrowing SecretBytes
    ) throws(Errno) -> SecretBytes? {
        var all = try SecretBytes(zeroed: groups * groupCharacters + 1)
        var one = try SecretBytes(zeroed: groupCharacters + 1)
        let counts = all.withUnsafeMutableBytes { all in
            one.withUnsafeMutableBytes { one in
                (
                    text.withUnsafeBytes { copyCharacters($0, to: all) },
                    typed.withUnsafeBytes { copyCharacters($0, to: one) }
                )
            }
        }
        guard counts.0 == groups * groupCharacters, counts.1 == groupCharacters,
            (1...groups).contains(group)
        else { return nil }
        let start = (group - 1) * groupCharacters
        all.withUnsafeMutableBytes { all in
            one.withUnsafeBytes { one in
                all[start..<start + groupCharacters].copyBytes(from: one[..<groupCharacters])
            }
        }
        all.shorten(to: groups * groupCharacters)
        return all
    }

    /// Copies the bytes that are not blanks, hyphens or line ends, as many as fit. Returns how many
    /// it copied.
    private static func copyCharacters(
        _ source: UnsafeRawBufferPointer, to target: UnsafeMutableRawBufferPointer
    ) -> Int {
        var count = 0
        for byte in source where ![9, 10, 13, 32, 45].contains(byte) {
            guard count < target.count else { break }
            target[count] = byte
            count += 1
        }
        return count
    }
}
