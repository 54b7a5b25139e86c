// swift-tools-version: 6.1
import PackageDescription

// One idea for each target, leaves first: a target imports only targets above it.
// `scripts/check-layering` checks that.

let swiftSettings: [SwiftSetting] = [
    .swiftLanguageMode(.v6),
    .enableUpcomingFeature("ExistentialAny"),
]

let package = Package(
    name: "ward",
    products: [
        .executable(name: "ward", targets: ["ward"]),
        .executable(name: "ward-lint", targets: ["ward-lint"]),
        .library(name: "DataProtection", targets: ["DataProtection"]),
        .library(name: "DataProtectionGRDB", targets: ["DataProtectionGRDB"]),
        .library(name: "DataProtectionSQLite", targets: ["DataProtectionSQLite"]),
        .library(name: "DataProtectionTesting", targets: ["DataProtectionTesting"]),
        .library(name: "DataProtectionXCTest", targets: ["DataProtectionXCTest"]),
    ],
    dependencies: [
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
        // Exact, because ward calls BoringSSL inside this package by its private C names
        // (docs/decisions/0002).
        .package(url: "https://github.com/apple/swift-crypto", exact: "4.5.2"),
        .package(url: "https://github.com/apple/swift-system", from: "1.8.1"),
        // For DataProtectionGRDB alone. Packages that do not use that product do not build GRDB.
        .package(url: "https://github.com/groue/GRDB.swift", from: "7.10.0"),
    ],
    targets: [
        .target(name: "CWardLinux"),
        .target(
            name: "WardSystem",
            dependencies: ["CWardLinux", .product(name: "SystemPackage", package: "swift-system")],
            swiftSettings: swiftSettings),
        .target(
            name: "WardCrypto",
            dependencies: [
                "CWardLinux", "WardSystem", .product(name: "Crypto", package: "swift-crypto"),
            ],
            swiftSettings: swiftSettings),
        .target(
            name: "WardFormat", dependencies: ["WardSystem", "WardCrypto"],
            swiftSettings: swiftSettings),
        .target(
            name: "WardKeys",
            dependencies: ["CWardLinux", "WardSystem", "WardCrypto", "WardFormat"],
            swiftSettings: swiftSettings),
        .target(
            name: "WardTrustedHosts",
            dependencies: ["WardSystem", "WardCrypto", "WardFormat", "WardKeys"],
            swiftSettings: swiftSettings),
        .target(
            name: "WardVolume",
            dependencies: ["CWardLinux", "WardSystem", "WardCrypto", "WardFormat", "WardKeys"],
            swiftSettings: swiftSettings),
        .target(
            name: "WardVolumeCheck",
            dependencies: ["WardSystem", "WardFormat", "WardVolume"],
            swiftSettings: swiftSettings),
        .target(
            name: "WardBackup",
            dependencies: [
                "CWardLinux", "WardSystem", "WardCrypto", "WardFormat", "WardVolume",
            ],
            swiftSettings: swiftSettings),
        // A disk in memory that loses power, and operations on volumes on it: for tests and `make
        // crash`.
        .target(
            name: "WardSimulatedStorage",
            dependencies: [
                "CWardLinux", "WardSystem", "WardCrypto", "WardFormat", "WardKeys", "WardVolume",
            ],
            swiftSettings: swiftSettings),
        .executableTarget(
            name: "ward-crash", dependencies: ["WardSystem", "WardSimulatedStorage"],
            swiftSettings: swiftSettings),
        .target(
            name: "WardFUSE", dependencies: ["CWardLinux", "WardSystem", "WardVolume"],
            swiftSettings: swiftSettings),
        .target(
            name: "WardControl", dependencies: ["CWardLinux", "WardSystem"],
            swiftSettings: swiftSettings),
        .testTarget(
            name: "WardControlTests",
            dependencies: ["CWardLinux", "WardControl", "WardSystem", "WardTestSupport"],
            swiftSettings: swiftSettings),
        .target(
            name: "WardConsole",
            dependencies: [
                "WardSystem", "WardControl",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            swiftSettings: swiftSettings),
        // The work of `ward lint`, for a program without keys. `ward` starts it by its path.
        .target(
            name: "WardLint",
            dependencies: [
                "WardSystem", "WardControl", "WardConsole",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            swiftSettings: swiftSettings),
        .executableTarget(
            name: "ward-lint", dependencies: ["WardConsole", "WardLint"],
            swiftSettings: swiftSettings),
        .testTarget(
            name: "WardLintTests", dependencies: ["WardLint", "WardTestSupport"],
            swiftSettings: swiftSettings),
        .target(
            name: "WardContainers", dependencies: ["CWardLinux", "WardSystem", "WardControl"],
            swiftSettings: swiftSettings),
        .testTarget(
            name: "WardContainersTests", dependencies: ["WardContainers"],
            swiftSettings: swiftSettings),
        .target(
            name: "DataProtectionLinux",
            dependencies: ["CWardLinux", "WardSystem", "WardControl", "WardContainers"],
            swiftSettings: swiftSettings),
        .target(
            name: "DataProtection",
            dependencies: [
                .target(name: "DataProtectionLinux", condition: .when(platforms: [.linux]))
            ],
            swiftSettings: swiftSettings),
        // XCTest's and DataProtection's declarations, for test files.
        .target(
            name: "DataProtectionXCTest", dependencies: ["DataProtection"],
            swiftSettings: swiftSettings),
        .systemLibrary(name: "CWardSQLite3"),
        .target(
            name: "DataProtectionSQLite",
            dependencies: [
                "DataProtection",
                .target(name: "CWardSQLite3", condition: .when(platforms: [.linux])),
            ],
            swiftSettings: swiftSettings),
        .target(name: "CDataProtectionSQLite"),
        .target(
            name: "DataProtectionGRDB",
            dependencies: [
                "CDataProtectionSQLite", "CWardLinux", "DataProtection", "WardControl",
                "WardSystem", .product(name: "GRDB", package: "GRDB.swift"),
                .product(name: "GRDBSQLite", package: "GRDB.swift"),
            ],
            swiftSettings: swiftSettings),
        .target(
            name: "WardSimulation",
            dependencies: [
                "CWardLinux", "WardSystem", "WardFormat", "WardControl", "WardContainers",
                .product(name: "Crypto", package: "swift-crypto"),
            ],
            swiftSettings: swiftSettings),
        .target(
            name: "WardDaemon",
            dependencies: [
                "CWardLinux", "WardSystem", "WardCrypto", "WardFormat", "WardKeys",
                "WardTrustedHosts", "WardVolume", "WardVolumeCheck", "WardFUSE", "WardControl",
            ],
            swiftSettings: swiftSettings),
        .target(
            name: "WardCommands",
            dependencies: [
                "CWardLinux", "WardSystem", "WardCrypto", "WardFormat", "WardKeys",
                "WardTrustedHosts", "WardVolume", "WardVolumeCheck", "WardBackup", "WardControl",
                "WardConsole", "WardContainers", "WardSimulation",
                "WardDaemon", .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            swiftSettings: swiftSettings),
        .executableTarget(
            name: "ward", dependencies: ["WardCommands", "WardConsole"],
            swiftSettings: swiftSettings),
        // The program serves the volume. It is built with the library, and so lies beside the tests
        // of packages that depend on the library.
        .target(
            name: "DataProtectionTesting",
            dependencies: [
                "CWardLinux", "WardSystem", "WardFormat", "WardControl", "WardContainers",
                "WardSimulation", "ward",
            ],
            swiftSettings: swiftSettings),
        .testTarget(
            name: "DataProtectionTestingTests",
            dependencies: [
                "DataProtectionLinux", "DataProtectionTesting", "DataProtectionXCTest",
                "WardTestSupport",
            ],
            swiftSettings: swiftSettings),
        .testTarget(
            name: "WardCryptoTests",
            dependencies: [
                "CWardLinux", "WardSystem", "WardCrypto",
                .product(name: "Crypto", package: "swift-crypto"),
            ],
            swiftSettings: swiftSettings),
        .testTarget(
            name: "WardSystemTests", dependencies: ["CWardLinux", "WardCrypto", "WardSystem"],
            swiftSettings: swiftSettings),
        .testTarget(
            name: "WardKeysTests",
            dependencies: [
                "CWardLinux", "WardSystem", "WardCrypto", "WardFormat", "WardKeys",
                "WardTrustedHosts",
            ],
            swiftSettings: swiftSettings),
        .testTarget(
            name: "WardFormatTests", dependencies: ["WardFormat", "WardCrypto", "WardSystem"],
            swiftSettings: swiftSettings),
        // The files of Tests/Vectors, read by every parser.
        .testTarget(
            name: "FormatVectorTests",
            dependencies: [
                "WardVolume", "WardFormat", "WardKeys", "WardTrustedHosts", "WardCrypto",
                "WardSystem",
            ],
            swiftSettings: swiftSettings),
        .testTarget(
            name: "WardVolumeTests",
            dependencies: [
                "CWardLinux", "WardVolume", "WardVolumeCheck", "WardSimulatedStorage",
                "WardFormat", "WardKeys", "WardCrypto", "WardSystem", "WardTestSupport",
            ],
            swiftSettings: swiftSettings),
        .testTarget(
            name: "WardFUSETests",
            dependencies: [
                "CWardLinux", "WardCrypto", "WardFormat", "WardFUSE", "WardKeys", "WardSystem",
                "WardTestSupport", "WardVolume",
            ],
            swiftSettings: swiftSettings),
        .testTarget(
            name: "WardDaemonTests",
            dependencies: [
                "WardControl", "WardCrypto", "WardDaemon", "WardFormat", "WardKeys", "WardSystem",
                "WardTestSupport", "WardVolume",
            ],
            swiftSettings: swiftSettings),
        .testTarget(
            name: "WardCommandsTests",
            dependencies: ["WardCommands", "WardConsole", "WardControl"],
            swiftSettings: swiftSettings),
        .target(name: "CMemorySearch", path: "Tests/CMemorySearch"),
        // Volumes for tests on real mounts, served by the built program.
        .target(
            name: "WardTestSupport", path: "Tests/WardTestSupport", swiftSettings: swiftSettings),
        .testTarget(
            name: "DataProtectionTests",
            dependencies: [
                "CWardLinux", "DataProtection", "DataProtectionLinux", "DataProtectionSQLite",
                "WardContainers", "WardTestSupport",
            ],
            exclude: ["Outside"],
            swiftSettings: swiftSettings),
        .testTarget(
            name: "DataProtectionGRDBTests",
            dependencies: [
                "DataProtection", "DataProtectionGRDB", "DataProtectionTesting", "WardTestSupport",
            ],
            swiftSettings: swiftSettings),
        // Runs the built program. It imports only modules that Memory/ needs to know the secrets
        // that must not be found.
        .testTarget(
            name: "WardMountTests",
            dependencies: [
                "CMemorySearch", "CWardLinux", "WardSystem", "WardCrypto", "WardFormat", "WardKeys",
                "WardTestSupport", "WardVolume",
            ],
            exclude: ["Scripts", "Transcripts"],
            swiftSettings: swiftSettings),
    ]
)

// For `make docs` alone, so that packages that depend on ward do not fetch it.
if Context.environment["WARD_DOCS"] != nil {
    package.dependencies.append(
        .package(url: "https://github.com/swiftlang/swift-docc-plugin", from: "1.5.0"))
}

// For fuzz/run alone: the parsers under libFuzzer, which needs to know which branches are taken.
// The value is the path of libFuzzer's archive (without its main), which only the toolchain knows.
// Arithmetic and indices are checked as in a debug build, at the speed of a release build.
if let libFuzzer = Context.environment["WARD_FUZZ"] {
    let checks = ["-O", "-assert-config", "Debug"]
    let dependencies = [
        "WardSystem", "WardFormat", "WardKeys", "WardTrustedHosts", "WardVolume", "WardBackup",
        "WardFUSE", "WardControl", "WardConsole", "WardLint", "WardContainers", "WardSimulation",
        "WardDaemon",
        "WardCommands",
    ]
    for target in package.targets where dependencies.contains(target.name) {
        target.swiftSettings?.append(
            .unsafeFlags(checks + ["-enable-testing", "-sanitize=fuzzer"]))
    }
    package.targets.append(
        .executableTarget(
            name: "WardFuzz",
            dependencies: ["CWardLinux", "WardCrypto"]
                + dependencies.map { .init(stringLiteral: $0) } + [
                    .product(name: "ArgumentParser", package: "swift-argument-parser")
                ],
            path: "fuzz/WardFuzz",
            swiftSettings: swiftSettings + [
                .enableExperimentalFeature("Extern"), .unsafeFlags(checks),
            ],
            linkerSettings: [.unsafeFlags([libFuzzer, "-lstdc++"])]))
}
