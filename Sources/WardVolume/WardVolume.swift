// WardVolume: the encrypted tree. It does names, headers, pages, class rules and durability over a
// `Storage`, without FUSE and sockets. The entry point is `Volume`, with one method per kind of
// request. Any number of threads call it, each with its own `WorkerContext`. `ClassGate` decides
// whether content may be touched now.
