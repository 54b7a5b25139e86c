// WardConsole: what the programs of the command line share, without any key.
//
// All output goes through `Console`. A failure is a `CommandFailure`: two lines and an exit code
// (`ExitStatus`). `runToExit` runs a program's root command. `LintOptions` is the command line of
// `ward lint`, which two programs read. Read `Console` first.
