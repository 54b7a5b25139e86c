// WardSystem: what ward needs of Linux, as Swift values.
//
// Descriptors with one owner (`OwnedDescriptor`), system calls that throw `Errno` and retry EINTR
// (`Syscall`), secrets in locked pages (`SecretBytes`, `SecretHeap`), random bytes (`SystemRandom`)
// and clocks (`SystemClock`). Nothing in here knows what ward is. Read `SecretBytes` first.

@_exported import struct SystemPackage.Errno
