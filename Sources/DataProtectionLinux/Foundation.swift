// Every declaration of this module that Foundation has too is preferred to Foundation's where this
// module is imported and Foundation is not. Foundation's own are reached by module selectors:
// `FoundationEssentials::write`.
@_exported import Foundation
