/// The names that `ward lint` looks for. The ambiguous imports were tried with Swift 6.3 on Linux.
enum LintRules {
    /// The library that gives file protection its meaning on Linux.
    static let library = "DataProtection"
    /// The same library with XCTest's declarations.
    static let libraryForXCTest = "DataProtectionXCTest"

    /// Modules whose declarations conflict with those of `DataProtection` where both are imported
    /// as a whole.
    static let ambiguous: Set<String> = ["Foundation", "FoundationEssentials", "XCTest"]

    /// Names with which Foundation on Linux accepts a protection class and ignores it.
    static let protection: Set<String> = [
        "completeFileProtection", "completeFileProtectionUnlessOpen",
        "completeFileProtectionUntilFirstUserAuthentication",
        "completeFileProtectionWhenUserInactive", "noFileProtection", "fileProtectionMask",
        "FileProtectionType", "protectionKey", "URLFileProtection", "fileProtection",
        "fileProtectionKey", "volumeSupportsFileProtection", "volumeSupportsFileProtectionKey",
        "isExcludedFromBackup", "isExcludedFromBackupKey", "NSPersistentStoreFileProtectionKey",
    ]
    static let protectionPrefixes = ["NSFileProtection", "NSURLFileProtection"]
    /// Flags of Apple's SQLite, which `DataProtectionSQLite` declares. Without that module they
    /// don't compile on Linux.
    static let databasePrefix = "SQLITE_OPEN_FILEPROTECTION_"

    /// Calls that make or change files. Those of the second set count only with one of these first
    /// labels.
    static let writing: Set<String> = [
        "createFile", "createDirectory", "setAttributes", "copyItem", "moveItem", "replaceItem",
        "replaceItemAt", "setResourceValue", "setResourceValues",
    ]
    static let writingWithLabel: [String: Set<String>] = [
        "write": ["to", "toFile"]
    ]

    /// In extensions of these types the calls need no dot.
    static let writers: Set<String> = [
        "FileManager", "Data", "NSData", "String", "Substring", "StringProtocol", "URL", "NSURL",
    ]

    static let modulesOfLinux: Set<String> = [
        library, libraryForXCTest, "DataProtectionSQLite", "Foundation", "FoundationEssentials",
        "FoundationNetworking", "Glibc", "Dispatch",
    ]
    static let modulesOfApple: Set<String> = [
        "Darwin", "UIKit", "AppKit", "SwiftUI", "Combine", "CoreData", "SwiftData", "WatchKit",
        "CoreFoundation", "ObjectiveC", "Security", "CryptoKit", "os", "OSLog", "StoreKit",
    ]
}

/// A place in the source where protection does not do what its author expects.
struct LintFinding: Equatable {
    enum Rule: String, CaseIterable {
        /// The file asks for protection without the library: nothing is protected.
        case unprotected
        /// The file writes without the library in a package that uses it elsewhere. The written
        /// files get no class, and no error tells of a lock.
        case plainWrite
        /// The file imports the library and also, as a whole, a module with the same calls.
        case ambiguousImport
        /// The file asks for protection only in branches of `#if` that Linux does not compile.
        case notCompiled
    }

    var rule: Rule
    /// The name that was found: a member or a module.
    var name: String
    /// Counted from 1, like `column`.
    var line: Int
    var column: Int

    var message: String {
        switch rule {
        case .unprotected:
            "\(name) does nothing here: this file does not import \(LintRules.library)"
        case .plainWrite:
            "\(name) is Foundation's here: this file does not import \(LintRules.library)"
        case .ambiguousImport:
            "calls are ambiguous between \(name) and \(LintRules.library)"
        case .notCompiled:
            "\(name) stands in a branch of #if that Linux does not compile: nothing is protected"
        }
    }

    /// The file imports XCTest but not Foundation, as test files do.
    var isInTests = false

    var hint: String {
        switch rule {
        case .unprotected, .plainWrite:
            isInTests
                ? "import \(LintRules.libraryForXCTest) in place of XCTest"
                : "import \(LintRules.library) in place of Foundation"
        case .ambiguousImport:
            name == "XCTest"
                ? "import \(LintRules.libraryForXCTest) in place of both"
                : "remove import \(name); \(LintRules.library) brings it along"
        case .notCompiled:
            "write #if os(iOS) || os(Linux), or #if canImport(\(LintRules.library))"
        }
    }
}
