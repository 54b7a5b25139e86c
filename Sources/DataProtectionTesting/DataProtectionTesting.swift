// Simulated devices for tests: real volumes, mounted in temporary directories. The test controls
// the clock, the lock and the passcode. Begin with `SimulatedDevice`.
