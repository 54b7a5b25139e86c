// `import DataProtection` in place of `import Foundation`.
//
// On Apple's platforms this module is Foundation and nothing else. On Linux it is Foundation, with
// the calls that take a file protection class replaced by calls that honour it
// (`DataProtectionLinux`). Foundation must not be re-exported here as well: the compiler prefers a
// module's declarations only to those of modules that the same module re-exports.
#if os(Linux)
    @_exported import DataProtectionLinux
#else
    @_exported import Foundation
#endif
