// swift-tools-version: 6.1
import PackageDescription

let package = Package(
    name: "RunTracker",
    dependencies: [
        // In another package: .package(url: "…", from: "…")
        .package(name: "ward", path: "../..")
    ],
    targets: [
        .target(
            name: "RunTracker",
            dependencies: [
                .product(name: "DataProtection", package: "ward"),
                .product(name: "DataProtectionGRDB", package: "ward"),
            ]),
        .executableTarget(
            name: "run-tracker",
            dependencies: ["RunTracker", .product(name: "DataProtection", package: "ward")]),
        .testTarget(
            name: "RunTrackerTests",
            dependencies: [
                "RunTracker", .product(name: "DataProtection", package: "ward"),
                .product(name: "DataProtectionTesting", package: "ward"),
            ]),
    ]
)
