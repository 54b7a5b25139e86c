import WardCommands
import WardConsole

// All code is in WardCommands, so that tests can link it.
WardCommand.prepareProcess()
WardCommand.runToExit()
