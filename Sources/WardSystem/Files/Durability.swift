import Synchronization

/// Whether this process makes writes safe from power cuts. Only a process that serves or makes a
/// test's volume may give that up. Its volume ends with the test, and syncs would wait for the disk
/// of a busy machine.
public enum Durability {
    private static let givenUp = Atomic(false)

    /// Makes fsync(2), fdatasync(2) and syncfs(2) return at once from now on. Writes of a killed
    /// process are not lost: the kernel has them.
    public static func giveUp() { givenUp.store(true, ordering: .relaxed) }

    static var isGivenUp: Bool { givenUp.load(ordering: .relaxed) }
}
