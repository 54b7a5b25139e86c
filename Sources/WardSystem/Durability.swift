import Synchronization

/// Whether this process cares for power cuts. It does, but for one that serves or makes a volume of
/// a test, gone with it: there, what is waited for is the disk of a busy machine.
public enum Durability {
    private static let givenUp = Atomic(false)

    /// From here on fsync(2), fdatasync(2) and syncfs(2) return at once. What a killed process has
    /// written stays all the same: the kernel has it.
    public static func giveUp() { givenUp.store(true, ordering: .relaxed) }

    static var isGivenUp: Bool { givenUp.load(ordering: .relaxed) }
}
