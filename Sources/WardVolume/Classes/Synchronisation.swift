/// Whether a directory is synchronised: the answer of `user.ward.synced`.
enum Synchronisation: String {
    /// The directory has a mark of its own.
    case marked
    /// The directory or file lies in a marked directory.
    case inherited
}
