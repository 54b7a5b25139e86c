// WardControl: how a program talks to the daemon of a mounted volume.
//
// Each volume has one Unix socket. It speaks Varlink (varlink.org: JSON objects that end with a
// zero byte), interface `org.ward.Volume`; its text is `VolumeInterface.description`. The type
// `RuntimeDirectory` finds the socket, `ControlClient` calls, and `ControlServer` answers through a
// `ControlHandler`. Passcodes never leave locked memory on either side (`JSONParser`,
// `ControlClient`). Read `VolumeInterface` first.
