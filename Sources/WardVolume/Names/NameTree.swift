import Synchronization

/// The changes of names that are under way.
///
/// Concurrency: any thread; each part guards itself.
final class NameTree: Sendable {
    /// A long name has two halves. Threads that make or remove one share this lock. A check takes
    /// it exclusively, so that it never reports a half that a request is about to use as a
    /// leftover.
    ///
    /// Threads that share it may wait for class decisions, and other threads take it inside a
    /// decision. So the exclusive holder never waits for decisions.
    let longNames = ReadWriteLock(.longNames)
    /// Shared from the making of a long link's target until the link exists. A check takes it
    /// exclusively.
    let longTargets = ReadWriteLock(.longTargets)
    let changes = NameChanges()
    /// Creations of files between the new name in the backing store and the file's node.
    let creations = NameChanges()
    let movedNodes = MovedNodes()
}
