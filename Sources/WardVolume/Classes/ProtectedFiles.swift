import WardFormat

/// The files above C below a directory.
struct ProtectedFiles {
    var count = 0
    var strongest: ProtectionClass?

    /// Counts a file. Does nothing for a class that a synchronised directory may hold.
    mutating func add(_ protectionClass: ProtectionClass) {
        if protectionClass.isForSynchronised { return }
        count += 1
        if protectionClass.strength > strongest?.strength ?? 0 { strongest = protectionClass }
    }
}
