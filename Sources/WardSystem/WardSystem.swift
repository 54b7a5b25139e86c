// WardSystem: the parts of Linux that ward needs, as Swift values.
//
// It has descriptors with one owner (`OwnedDescriptor`), system calls that throw `Errno` and retry
// EINTR (`Syscall`), and secrets in locked pages (`SecretBytes`, `SecretHeap`). It also has random
// bytes (`SystemRandom`) and clocks (`SystemClock`). No code here knows what ward is, but for the
// names of its attributes (`ClassAttribute`, `MountAttribute`). Read `SecretBytes` first.

@_exported import struct SystemPackage.Errno
