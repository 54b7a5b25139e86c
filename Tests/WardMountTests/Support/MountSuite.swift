import Testing
@_exported import WardTestSupport

/// Everything that mounts a volume. After the last test no mount, process or file of ours may be
/// left.
@Suite(.leavesNothingBehind) enum MountSuite {}
