// WardControl: how a program talks to the daemon of a mounted volume.
//
// One Unix socket per volume, Varlink on it (varlink.org: JSON objects that end with a zero byte),
// interface `org.ward.Volume` (`VolumeInterface.description` is its text). `RuntimeDirectory` finds
// the socket, `ControlClient` calls, `ControlServer` answers through a `ControlHandler`. Passcodes
// never leave locked memory on either side (`JSONParser`, `ControlClient`). Read `VolumeInterface`
// first.
