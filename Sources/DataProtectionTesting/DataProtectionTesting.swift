// A device of one's own for tests: a real volume, mounted in a temporary directory, whose clock,
// lock and passcode the test holds in its hand. Begin with `SimulatedDevice`.
