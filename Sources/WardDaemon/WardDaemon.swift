// WardDaemon: the process that serves one volume. The function `Daemon.run` puts keybag, volume,
// FUSE connection and control socket together, and takes them apart again.
//
// The type `LockKeeper` owns the lock state and performs the effects of the state machine. Calls
// are answered by the handlers that `ControlService` has, and events are kept and streamed by
// `EventHub`.
