// WardCommands: the command line, one file per verb, named after it.
//
// `WardCommand` is the root and turns every failure into the two lines of `CommandFailure` and an
// exit code (`ExitStatus`). A verb that talks to a mounted volume finds it through `MountedVolume`;
// secrets come in through `SecretSource`. What is printed where is decided by `Console`. Read
// `WardCommand` and `StatusCommand` first.
