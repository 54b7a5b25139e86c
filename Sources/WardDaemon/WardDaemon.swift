// WardDaemon
