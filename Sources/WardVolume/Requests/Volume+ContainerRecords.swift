import WardSystem

/// The record of a container stands in an attribute of its root and names the container's groups
/// (docs/containers.md, "The record"). A program in the container's sandbox may write to the root.
/// It must not use the record to get another group's files at its next run.
extension Volume {
    static let containerRecordName = "user.ward.container"

    /// Throws `EPERM` if the attribute `name` is a container's record and the caller is outside the
    /// daemon's user namespace. So does a caller whose namespace can't be read.
    func guardContainerRecord(
        _ name: UnsafeRawBufferPointer, _ caller: Caller
    ) throws(Errno) {
        guard name.elementsEqual(Volume.containerRecordName.utf8),
            !UserNamespace.isOwn(ofProcess: caller.pid)
        else { return }
        throw .notPermitted
    }
}
