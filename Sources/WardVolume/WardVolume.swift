// WardVolume: the encrypted tree. Names, headers, pages, class rules and durability over a
// `Storage`; no FUSE, no sockets. `Volume` is the front door: one method per kind of request,
// called from any number of threads, each with a `WorkerContext` of its own. `ClassGate` decides
// whether content may be touched now.
