// WardKeys: who may open what, and when. Class keys in memory (`ClassKeyring`), the keybag and its
// slots on disk (`KeybagStore`), the device's own secrets, and the lock state machine
// (`LockStateMachine`: event in, effects out).
