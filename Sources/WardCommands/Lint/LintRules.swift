/// What `ward lint` looks for. Which imports make calls ambiguous was tried with Swift 6.3 on
/// Linux.
enum LintRules {
    /// The library that gives file protection its meaning on Linux.
    static let library = "DataProtection"
    /// The same with XCTest's declarations.
    static let libraryForXCTest = "DataProtectionXCTest"

    /// Where they are imported as a whole beside `DataProtection`, the compiler can't choose
    /// between two declarations.
    static let ambiguous: Set<String> = ["Foundation", "FoundationEssentials", "XCTest"]

    /// Names with which Foundation on Linux accepts a protection class, and forgets it.
    static let protection: Set<String> = [
        "completeFileProtection", "completeFileProtectionUnlessOpen",
        "completeFileProtectionUntilFirstUserAuthentication",
        "completeFileProtectionWhenUserInactive", "noFileProtection", "fileProtectionMask",
        "FileProtectionType", "protectionKey", "URLFileProtection", "fileProtection",
        "fileProtectionKey", "volumeSupportsFileProtection", "volumeSupportsFileProtectionKey",
        "isExcludedFromBackup", "isExcludedFromBackupKey", "NSPersistentStoreFileProtectionKey",
    ]
    static let protectionPrefixes = ["NSFileProtection", "NSURLFileProtection"]
    /// Flags of Apple's SQLite, which `DataProtectionSQLite` has: without it they don't compile on
    /// Linux.
    static let databasePrefix = "SQLITE_OPEN_FILEPROTECTION_"

    /// Calls that make or change files. The second set only with such a first label.
    static let writing: Set<String> = [
        "createFile", "createDirectory", "setAttributes", "copyItem", "moveItem", "replaceItem",
        "replaceItemAt", "setResourceValue", "setResourceValues",
    ]
    static let writingWithLabel: [String: Set<String>] = [
        "write": ["to", "toFile"]
    ]

    /// In extensions of these they are called without a dot, too.
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

/// Something that would surprise whoever relies on protection.
struct LintFinding: Equatable {
    enum Rule: String, CaseIterable {
        /// Asks for protection and does not import the library: nothing is protected.
        case unprotected
        /// Writes files in a package that adopted the library, without it: no class, no error that
        /// tells of a lock.
        case plainWrite
        /// Imports the library and, as a whole, a module that has the same calls.
        case ambiguousImport
        /// Asks for protection in a branch of `#if` that Linux does not compile, and in no other of
        /// it.
        case notCompiled
    }

    var rule: Rule
    /// The name that was found: a member, or a module.
    var name: String
    /// From 1.
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

    /// The file imports XCTest and not Foundation, as test files do.
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
