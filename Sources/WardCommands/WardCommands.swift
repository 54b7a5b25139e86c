// WardCommands: the command line, with one file for each command, named after it.
//
// `WardCommand` is the root. It turns every failure into the two lines of `CommandFailure` and an
// exit code (`ExitStatus`). A command finds a mounted volume with `VolumeConnection` and reads
// secrets with `SecretInput`. All output goes through `Console`. Read `WardCommand` and
// `StatusCommand` first.
