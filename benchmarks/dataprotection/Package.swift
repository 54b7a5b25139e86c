// swift-tools-version: 6.1
import PackageDescription

// Measures the cost of the library against Foundation's own calls. `run` beside this file starts
// it.
let ward = Context.environment["WARD_PACKAGE"] ?? "../.."
let name = ward.split(separator: "/").last.map(String.init) ?? "ward"

let package = Package(
    name: "Measure",
    dependencies: [.package(path: ward)],
    targets: [
        .executableTarget(
            name: "Measure", dependencies: [.product(name: "DataProtection", package: name)])
    ]
)
