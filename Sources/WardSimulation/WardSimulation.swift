// Simulated devices: volumes with a manual clock for tests, each made, served and removed by a
// process of its own.
//
// `SimulatorProcess` starts that process (`ward simulate`) and talks to it in `SimulatorMessage`s;
// `Auditor`, which runs there, judges what a program did to its files and says so in an `Audit`.
// `ward test` and the library `DataProtectionTesting` are two faces of this.
