// WardFUSE: the kernel's FUSE protocol, spoken directly over /dev/fuse or io_uring; knows no keys.
//
// `FUSEConnection` is the front door: it mounts, serves a `Volume` until the kernel ends the
// connection, and tells the kernel what to forget. Below it, in the order in which a request
// travels:
// - `DeviceTransport` reads requests, or `RingWorkers` with a `RingTransport` each, where the
//   kernel offers it (decision 0066);
// - `RequestReader` parses them in place;
// - `RequestServer` calls the volume and replies;
// - `DirectoryPacker` and `Wire` have the shapes of replies.
//
// `Negotiation` has the agreement with the kernel, and why. No code here allocates for each
// request.
