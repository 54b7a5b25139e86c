/// Reads the little-endian fields of keybags, recovery kits and device files in order, and never
/// past the end. A field that does not fit throws `FormatError` `malformed`.
struct KeybagReader {
    private let bytes: ArraySlice<UInt8>
    private(set) var offset: Int
    /// The name of the structure, for errors.
    private let structure: String

    init(_ bytes: ArraySlice<UInt8>, _ structure: String) {
        self.bytes = bytes
        self.structure = structure
        offset = bytes.startIndex
    }

    var remaining: Int { bytes.endIndex - offset }

    mutating func take(_ count: Int, _ field: String) throws(FormatError) -> [UInt8] {
        guard count >= 0, count <= remaining else {
            throw FormatError(.malformed, "\(structure): ends inside \(field)")
        }
        defer { offset += count }
        return Array(bytes[offset..<offset + count])
    }

    mutating func integer<T: FixedWidthInteger & UnsignedInteger>(
        _ type: T.Type, _ field: String
    ) throws(FormatError) -> T {
        let raw = try take(MemoryLayout<T>.size, field)
        return raw.reversed().reduce(T(0)) { $0 << 8 | T($1) }
    }

    /// Takes reserved bytes, which are zero in this version.
    mutating func zeros(_ count: Int, _ field: String) throws(FormatError) {
        guard try take(count, field).allSatisfy({ $0 == 0 }) else {
            throw FormatError(.malformed, "\(structure): \(field) is not zero")
        }
    }

    func end() throws(FormatError) {
        guard remaining == 0 else {
            throw FormatError(.malformed, "\(structure): \(remaining) bytes too many")
        }
    }
}

/// Appends little-endian fields.
struct KeybagWriter {
    private(set) var bytes: [UInt8] = []

    mutating func append(_ raw: [UInt8]) { bytes += raw }

    mutating func append<T: FixedWidthInteger & UnsignedInteger>(_ value: T) {
        withUnsafeBytes(of: value.littleEndian) { bytes.append(contentsOf: $0) }
    }

    mutating func appendZeros(_ count: Int) {
        bytes.append(contentsOf: repeatElement(0, count: count))
    }
}
