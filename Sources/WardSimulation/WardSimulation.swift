// Simulated devices for tests: volumes with a manual clock. A process for each makes, serves and
// removes it.
//
// `SimulatorProcess` starts that process (`ward simulate`) and sends it `SimulatorRequest`s. In
// that process `Auditor` judges the program's files and makes an `Audit`. Both `ward test` and the
// library `DataProtectionTesting` use this module.
