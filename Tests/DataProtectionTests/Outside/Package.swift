// swift-tools-version: 6.1
import PackageDescription

// An independent package outside of ward's; `make outside` builds it, `OutsidePackageTests` run its
// tests. Other packages write `.package(url:from:)`.
let ward = Package.Dependency.package(name: "ward", path: "../../..")
// No warnings, also not from the library's own calls: overloads and availability easily become
// ambiguous.
let noWarnings: [SwiftSetting] = [.unsafeFlags(["-warnings-as-errors"])]

let package = Package(
    name: "Notes",
    dependencies: [ward],
    targets: [
        .target(
            name: "Notes", dependencies: [.product(name: "DataProtection", package: "ward")],
            swiftSettings: noWarnings),
        .testTarget(name: "NotesTests", dependencies: ["Notes"], swiftSettings: noWarnings),
        .testTarget(
            name: "NotesOnDeviceTests",
            dependencies: [
                "Notes", .product(name: "DataProtectionTesting", package: "ward"),
            ], swiftSettings: noWarnings),
    ]
)
