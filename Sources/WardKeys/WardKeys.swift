// WardKeys: which keys open which classes, and when. It has the class keys in memory
// (`ClassKeyring`), the keybag and its slots on disk (`KeybagStore`), and the device's own secrets.
// The lock state machine (`LockStateMachine`) takes events and returns effects.
