import WardSystem

/// Which groups a container belongs to stands in an attribute of its root, docs/containers.md "The
/// record". A program in the container's sandbox may write to the root, and may not give itself the
/// files of another group by it for its next run.
extension Volume {
    static let containerRecordName = "user.ward.container"

    /// Throws `EPERM` where the attribute `name` is a container's record and the caller is not in
    /// the daemon's user namespace, or can't be looked at.
    func guardContainerRecord(
        _ name: UnsafeRawBufferPointer, _ caller: Caller
    ) throws(Errno) {
        guard name.elementsEqual(Volume.containerRecordName.utf8),
            !UserNamespace.isOwn(ofProcess: caller.pid)
        else { return }
        throw .notPermitted
    }
}
