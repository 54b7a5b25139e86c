// WardCommands
