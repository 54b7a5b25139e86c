/// The part of a mount's options that FUSE needs. `MountedService` makes it.
public struct FUSEMountOptions: Sendable {
    /// An empty directory.
    public var mountPoint: String
    /// The source in `/proc/self/mounts`: the volume's path.
    public var fileSystemName: String
    /// Whether users other than the one who mounts may use the mount (`allow_other`).
    public var allowOther = false
    public var readOnly = false
    /// Whether other machines or programs may change the backing directory while it is mounted.
    /// Then the kernel's caches expire after a second, and pages are dropped at every open.
    public var sharedStorage = false
    /// How requests are to come; mounting fails where that is not possible. Nil: the fastest way
    /// there is.
    public var transport: FUSETransport?
    /// The rules by which workers serve. Measurements turn some off.
    public var rules = ServingRules.all

    public init(mountPoint: String, fileSystemName: String) {
        self.mountPoint = mountPoint
        self.fileSystemName = fileSystemName
    }
}
