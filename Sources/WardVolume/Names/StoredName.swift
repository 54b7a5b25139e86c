import WardSystem

/// One name that a request makes or removes, in its directory. `BackingAccess.withName` lends it.
struct StoredName {
    let parent: Node
    let state: DirectoryState
    let directory: StoreDescriptor
    /// The plaintext.
    let plain: UnsafeRawBufferPointer
    /// The stored name, zero-terminated, in a buffer of the worker.
    let stored: UnsafePointer<CChar>
    let isLong: Bool

    /// The directory's descriptor.
    var descriptor: Int32 { directory.rawValue }

    /// Makes the other half of a long name, before the name itself.
    func makeLongLink(_ names: NameTree) throws(Errno) {
        if isLong { try names.makeLongLink(descriptor, stored, plain, state.id) }
    }

    /// Removes the other half of a long name that is gone.
    func removeLongLink(_ names: NameTree) {
        if isLong { names.removeLongLink(descriptor, stored) }
    }
}
