// swift-tools-version: 6.1
import PackageDescription

// A package as anybody's, outside of ward's; `make outside` builds it, `OutsidePackageTests` run
// its tests. Elsewhere the dependency would be `.package(url:from:)`.
let ward = Package.Dependency.package(name: "ward", path: "../../..")
// None, of the library's own calls in particular: overloads and availability are easily ambiguous.
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
