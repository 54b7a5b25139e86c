// Where a file imports this module and not Foundation, the compiler prefers this module's
// declarations to Foundation's of the same name. Module selectors reach Foundation's own:
// `FoundationEssentials::write`.
@_exported import Foundation
