// swift-tools-version: 6.1
import PackageDescription

// A package as anybody's, outside of ward's: `OutsidePackageTests` copies it into a temporary directory and builds it there.
// There the dependency would be `.package(url:from:)`.
let ward = Context.environment["WARD_PACKAGE"] ?? "../../.."
let name = ward.split(separator: "/").last.map(String.init) ?? "ward"

let package = Package(
    name: "Notes",
    dependencies: [.package(path: ward)],
    targets: [
        .target(
            name: "Notes", dependencies: [.product(name: "DataProtection", package: name)]),
        .testTarget(name: "NotesTests", dependencies: ["Notes"]),
        .testTarget(
            name: "NotesOnDeviceTests",
            dependencies: [
                "Notes", .product(name: "DataProtectionTesting", package: name),
            ]),
    ]
)
