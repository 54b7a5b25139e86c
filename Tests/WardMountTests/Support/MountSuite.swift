import Testing
@_exported import WardTestSupport

/// All tests that mount a volume. After the last test none of our mounts, processes or files may be
/// left.
@Suite(.leavesNothingBehind) enum MountSuite {}
