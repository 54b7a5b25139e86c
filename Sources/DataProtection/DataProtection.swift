// `import DataProtection` in place of `import Foundation`.
//
// On Apple's platforms it is Foundation and nothing else. On Linux it is Foundation with the calls
// that take a file protection class replaced by ones that mean it (`DataProtectionLinux`).
// Foundation must not be re-exported here beside them: the compiler prefers a module's declarations
// only to those of the modules that this very module re-exports.
#if os(Linux)
    @_exported import DataProtectionLinux
#else
    @_exported import Foundation
#endif
