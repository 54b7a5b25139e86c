import WardConsole
import WardLint

// All code is in WardLint, so that tests can link it.
LintCommand.runToExit()
