// WardDaemon: one process that serves one volume. `Daemon.run` puts keybag, volume, FUSE connection
// and control socket together and takes them apart again; `LockKeeper` owns the lock state and
// performs what the state machine asks for; `ControlService` answers calls; `EventHub` remembers
// and streams what happened.
