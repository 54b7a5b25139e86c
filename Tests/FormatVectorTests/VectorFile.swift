import Foundation
import Glibc
import WardFormat
import WardKeys
import WardSystem

/// One file of Tests/Vectors: the vectors, and the fields that they share.
struct VectorFile {
    let common: Vector
    let vectors: [Vector]

    init(_ name: String) throws {
        let directory = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
        let path = directory.appendingPathComponent("../Vectors/\(name).json")
        let fields = try Vector.object(JSONSerialization.jsonObject(with: Data(contentsOf: path)))
        guard let list = fields["vectors"] as? [[String: Any]], !list.isEmpty else {
            throw VectorError("\(name).json has no vectors")
        }
        common = Vector(fields: fields)
        vectors = list.map { Vector(fields: $0) }
    }
}

/// A vector, or a part of one: typed access to the JSON.
struct Vector {
    let fields: [String: Any]

    static func object(_ value: Any?) throws -> [String: Any] {
        guard let object = value as? [String: Any] else { throw VectorError("not an object") }
        return object
    }

    private func field<T>(_ name: String, as type: T.Type) throws -> T {
        guard let value = fields[name] as? T else {
            throw VectorError("\(self.name): no field \(name) of \(T.self)")
        }
        return value
    }

    var name: String { fields["name"] as? String ?? "?" }
    /// The reason why it is refused; nil for a good one.
    var error: String? { fields["error"] as? String }
    func has(_ name: String) -> Bool { fields[name].map { !($0 is NSNull) } ?? false }

    func text(_ name: String) throws -> String { try field(name, as: String.self) }
    func number(_ name: String) throws -> Int { try field(name, as: NSNumber.self).intValue }
    func unsigned(_ name: String) throws -> UInt64 {
        try field(name, as: NSNumber.self).uint64Value
    }
    /// The format of the structure's volume; 1 where the vector says nothing.
    func format() throws -> VolumeFormat {
        guard has("format") else { return .version1 }
        guard let format = VolumeFormat(rawValue: UInt16(try number("format"))) else {
            throw VectorError("\(name): no such format")
        }
        return format
    }
    func flag(_ name: String) throws -> Bool { try field(name, as: NSNumber.self).boolValue }
    func texts(_ name: String) throws -> [String] { try field(name, as: [String].self) }
    func part(_ name: String) throws -> Vector {
        Vector(fields: try Vector.object(fields[name]))
    }
    func parts(_ name: String) throws -> [Vector] {
        try field(name, as: [[String: Any]].self).map { Vector(fields: $0) }
    }
    /// Pairs of numbers.
    func spans(_ name: String) throws -> [[Int]] {
        try field(name, as: [[NSNumber]].self).map { $0.map(\.intValue) }
    }
    /// Hexadecimal.
    func bytes(_ name: String = "bytes") throws -> [UInt8] { try Vector.bytes(text(name)) }
    /// An object of hexadecimal fields.
    func files(_ name: String) throws -> [String: [UInt8]] {
        try field(name, as: [String: String].self).mapValues(Vector.bytes)
    }
    /// An object of keys, by the number of their kind.
    func keys(_ name: String) throws -> [Int: [UInt8]] {
        Dictionary(
            uniqueKeysWithValues: try files(name).map { (Int($0.key) ?? -1, $0.value) })
    }

    static func bytes(_ hexadecimal: String) throws -> [UInt8] {
        let digits = hexadecimal.utf8.compactMap { Character(UnicodeScalar($0)).hexDigitValue }
        guard digits.count == hexadecimal.utf8.count, digits.count % 2 == 0 else {
            throw VectorError("not hexadecimal: \(hexadecimal.prefix(40))")
        }
        return stride(from: 0, to: digits.count, by: 2).map {
            UInt8(digits[$0] << 4 | digits[$0 + 1])
        }
    }
}

struct VectorError: Error, CustomStringConvertible {
    let description: String
    init(_ description: String) { self.description = description }
}

extension FormatError.Code {
    /// The error's name in the vectors.
    var vectorName: String {
        switch self {
        case .notRecognised: "not recognised"
        case .newerVersion: "newer version"
        case .malformed: "malformed"
        case .authenticationFailed: "authentication failed"
        }
    }
}

/// Bytes of a vector as a secret.
func secret(_ bytes: [UInt8]) throws -> SecretBytes {
    var result = try SecretBytes(zeroed: bytes.count)
    result.withUnsafeMutableBytes { $0.copyBytes(from: bytes) }
    return result
}

extension SecretBytes {
    borrowing func exposed() -> [UInt8] { withUnsafeBytes { [UInt8]($0) } }
}

/// The result of reading: a description of the fields, or the name of the error. Also the result
/// that a vector expects.
enum Reading: Equatable, CustomStringConvertible {
    case fields([String])
    case refused(String)

    /// Runs a reader; a `FormatError` is a result.
    static func of(_ body: () throws -> [String]) throws -> Reading {
        do {
            return .fields(try body())
        } catch let error as FormatError {
            return .refused(error.code.vectorName)
        }
    }

    static func wanted(by vector: Vector, _ fields: () throws -> [String]) throws -> Reading {
        if let error = vector.error { return .refused(error) }
        return .fields(try fields())
    }

    var description: String {
        switch self {
        case .fields(let fields): "\(fields)"
        case .refused(let error): "refused: \(error)"
        }
    }
}

extension VectorFile {
    /// Writes the files of a volume or a device, with rights for their owner alone.
    static func plant(_ files: [String: [UInt8]], in directory: String) throws {
        try FileManager.default.createDirectory(
            atPath: directory, withIntermediateDirectories: true,
            attributes: [.posixPermissions: 0o700])
        for (name, bytes) in files {
            try Data(bytes).write(to: URL(fileURLWithPath: directory + "/" + name))
            chmod(directory + "/" + name, 0o600)
        }
    }

    /// The error's name in the vectors.
    static func name(of error: KeybagError) -> String {
        switch error.code {
        case .notAVolume: "not a volume"
        case .damaged: "damaged"
        case .newerVersion: "newer version"
        case .noDeviceKey: "no device key"
        case .erased: "erased"
        case .wrongPasscode: "wrong passcode"
        case .replayed: "replayed"
        case .hostUnknown: "unknown host"
        case .hostExpired: "expired"
        default: "\(error.code)"
        }
    }
}
