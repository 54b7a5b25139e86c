/// How to mount.
public struct FUSEMountOptions: Sendable {
    /// An empty directory.
    public var mountPoint: String
    /// What `/proc/self/mounts` shows as the source: the volume's path.
    public var fileSystemName: String
    /// Whether users other than the one who mounts may use it (`allow_other`).
    public var allowOther: Bool
    public var readOnly: Bool
    /// Whether somebody else may change the backing directory while it is mounted: then the
    /// kernel's caches expire after a second, and pages are dropped at every open.
    public var sharedStorage: Bool
    /// What requests are to come by; mounting fails where it can't be had. Nil: the fastest there
    /// is.
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
