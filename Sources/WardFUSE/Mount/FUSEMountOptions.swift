/// The part of a mount's options that FUSE needs. `MountedService` makes it.
public struct FUSEMountOptions: Sendable {
    /// An empty directory.
    public var mountPoint: String
    /// The source in `/proc/self/mounts`: the volume's path.
    public var fileSystemName: String
    /// Whether users other than the one who mounts may use the mount (`allow_other`).
    public var allowOther: Bool
    public var readOnly: Bool
    /// Whether other machines or programs may change the backing directory while it is mounted.
    /// Then the kernel's caches expire after a second, and pages are dropped at every open.
    public var sharedStorage: Bool
    /// How requests are to come; mounting fails where that is not possible. Nil: the fastest way
    /// there is.
    public var transport: FUSETransport?

    public init(
        mountPoint: String, fileSystemName: String, allowOther: Bool = false,
        readOnly: Bool = false, sharedStorage: Bool = false, transport: FUSETransport? = nil
    ) {
        self.mountPoint = mountPoint
        self.fileSystemName = fileSystemName
        self.allowOther = allowOther
        self.readOnly = readOnly
        self.sharedStorage = sharedStorage
        self.transport = transport
    }
}
