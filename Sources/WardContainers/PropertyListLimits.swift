/// Checks a property list before Foundation reads it. Foundation recurses as deep as the list says:
/// 20,000 nested arrays in XML end the program (swift-foundation in Swift 6.3). A binary list may
/// refer to itself.
enum PropertyListLimits {
    /// Xcode's entitlements have three levels.
    static let maximumDepth = 32
    /// The largest number of values; a value counts once for each reference to it.
    static let maximumValues = 20_000

    /// Throws where the list is too large or too deep, or is no property list. A list that passes
    /// may still be malformed, but parsing it costs little.
    static func check(_ bytes: [UInt8]) throws(EntitlementsError) {
        guard bytes.count <= Entitlements.maximumBytes else {
            throw EntitlementsError(
                "it is larger than \(Entitlements.maximumBytes >> 10) KiB: no entitlements file is")
        }
        if bytes.isEmpty { throw EntitlementsError("it is empty") }
        if bytes.starts(with: "bplist".utf8) {
            var list = BinaryPropertyList(bytes)
            try list.check()
        } else {
            try checkXML(bytes)
        }
    }

    // MARK: XML

    private static func checkXML(_ bytes: [UInt8]) throws(EntitlementsError) {
        let text = bytes.starts(with: [0xEF, 0xBB, 0xBF]) ? bytes[3...] : bytes[...]
        let begins = text.drop { $0 == 0x20 || (0x09...0x0D).contains($0) }
        guard
            ["<?xml", "<!DOCTYPE", "<plist", "<!--"].contains(where: {
                begins.starts(with: $0.utf8)
            })
        else {
            throw EntitlementsError(
                "it is neither an XML nor a binary property list",
                advice:
                    "entitlements are the file with the ending .entitlements in an Xcode project, "
                    + "or what codesign -d --entitlements - --xml NAME.app prints")
        }
        guard String(validating: begins, as: UTF8.self) != nil else {
            throw EntitlementsError("its text is not UTF-8")
        }
        try checkDepth(begins)
    }

    /// Counts the elements that are open at once. Comments, CDATA and instructions hold none;
    /// declared entities are refused.
    private static func checkDepth(_ text: ArraySlice<UInt8>) throws(EntitlementsError) {
        var depth = 0
        var count = 0
        var rest = text
        while let start = rest.firstIndex(of: UInt8(ascii: "<")) {
            rest = rest[start...]
            if rest.starts(with: "<!--".utf8) {
                rest = try after("-->", in: rest.dropFirst(4))
            } else if rest.starts(with: "<![CDATA[".utf8) {
                rest = try after("]]>", in: rest.dropFirst(9))
            } else if rest.starts(with: "<?".utf8) {
                // Foundation takes "<?>" for a complete instruction.
                rest = try after("?>", in: rest.dropFirst())
            } else if rest.starts(with: "<!".utf8) {
                let end = try after(">", in: rest)
                if rest[..<end.startIndex].contains(UInt8(ascii: "[")) {
                    throw EntitlementsError(
                        "it declares entities of its own, which no property list does")
                }
                rest = end
            } else {
                let end = try after(">", in: rest)
                if rest.dropFirst().first == UInt8(ascii: "/") {
                    depth -= 1
                } else if rest[..<end.startIndex].dropLast().last != UInt8(ascii: "/") {
                    depth += 1
                }
                count += 1
                if depth > maximumDepth { throw tooDeep }
                if count > maximumValues { throw tooMany }
                rest = end
            }
        }
    }

    private static func after(
        _ mark: StaticString, in text: ArraySlice<UInt8>
    ) throws(EntitlementsError) -> ArraySlice<UInt8> {
        let wanted = mark.withUTF8Buffer { Array($0) }
        var rest = text
        while let at = rest.firstIndex(of: wanted[0]) {
            rest = rest[at...]
            if rest.starts(with: wanted) { return rest.dropFirst(wanted.count) }
            rest = rest.dropFirst()
        }
        throw EntitlementsError("its XML ends early: \(mark) is missing")
    }

    static var tooDeep: EntitlementsError {
        EntitlementsError("its values are nested more than \(maximumDepth) deep")
    }
    static var tooMany: EntitlementsError {
        EntitlementsError("it holds more than \(maximumValues) values")
    }
}

/// Checks the structure of a binary property list:
/// ```
/// "bplist00" ‖ objects ‖ table of their offsets ‖ trailer
/// trailer: 6 zero bytes ‖ bytes of an offset 1 ‖ bytes of a reference 1 ‖ objects 8 ‖
///     top object 8 ‖ offset of the table 8          (all big-endian)
/// object: marker 1 (kind 4 bits, count 4 bits) ‖ content
///     (count 15: an integer object with the count comes before the content)
/// ```
private struct BinaryPropertyList {
    private let bytes: [UInt8]
    private var offsetBytes = 0
    private var referenceBytes = 0
    private var objects = 0
    private var table = 0
    private var values = 0

    private static let malformed = EntitlementsError("its binary property list is malformed")

    init(_ bytes: [UInt8]) { self.bytes = bytes }

    /// Visits all values from the top one, as a parser does.
    mutating func check() throws(EntitlementsError) {
        guard bytes.count >= 40, bytes.starts(with: "bplist0".utf8) else {
            throw BinaryPropertyList.malformed
        }
        let trailer = bytes.count - 32
        offsetBytes = Int(bytes[trailer + 6])
        referenceBytes = Int(bytes[trailer + 7])
        objects = try integer(at: trailer + 8, 8)
        let top = try integer(at: trailer + 16, 8)
        table = try integer(at: trailer + 24, 8)
        guard (1...8).contains(offsetBytes), (1...8).contains(referenceBytes),
            objects > 0, objects <= bytes.count, table >= 8, table <= trailer,
            objects * offsetBytes <= trailer - table
        else { throw BinaryPropertyList.malformed }
        try visit(top, depth: 0)
    }

    private mutating func visit(_ object: Int, depth: Int) throws(EntitlementsError) {
        if depth > PropertyListLimits.maximumDepth { throw PropertyListLimits.tooDeep }
        values += 1
        if values > PropertyListLimits.maximumValues { throw PropertyListLimits.tooMany }
        guard object < objects else { throw BinaryPropertyList.malformed }
        let at = try integer(at: table + object * offsetBytes, offsetBytes)
        guard at >= 8, at < table else { throw BinaryPropertyList.malformed }
        let marker = bytes[at]
        let low = Int(marker & 0x0F)
        switch marker >> 4 {
        case 0x0: break
        case 0x1, 0x2: try require(1 << low, at: at + 1, isPossible: low <= 4)
        case 0x3: try require(8, at: at + 1, isPossible: low == 3)
        case 0x8: try require(low + 1, at: at + 1)
        case 0x4, 0x5, 0x7:
            let (count, content) = try count(low, at: at + 1)
            try require(count, at: content)
        case 0x6:
            let (count, content) = try count(low, at: at + 1)
            try require(2 * count, at: content)
        case 0xA, 0xB, 0xC, 0xD:
            let (count, content) = try count(low, at: at + 1)
            let references = marker >> 4 == 0xD ? 2 * count : count
            try require(references * referenceBytes, at: content)
            for index in 0..<references {
                let reference = try integer(at: content + index * referenceBytes, referenceBytes)
                try visit(reference, depth: depth + 1)
            }
        default: throw BinaryPropertyList.malformed
        }
    }

    /// The count of a marker whose low bits are `low`, and where the content begins.
    private func count(_ low: Int, at: Int) throws(EntitlementsError) -> (count: Int, content: Int)
    {
        guard low == 15 else { return (low, at) }
        guard at < table, bytes[at] >> 4 == 0x1, bytes[at] & 0x0F <= 3 else {
            throw BinaryPropertyList.malformed
        }
        let width = 1 << Int(bytes[at] & 0x0F)
        let count = try integer(at: at + 1, width)
        guard count <= bytes.count else { throw BinaryPropertyList.malformed }
        return (count, at + 1 + width)
    }

    private func require(
        _ count: Int, at: Int, isPossible: Bool = true
    ) throws(EntitlementsError) {
        guard isPossible, at <= table, count <= table - at else {
            throw BinaryPropertyList.malformed
        }
    }

    private func integer(at: Int, _ width: Int) throws(EntitlementsError) -> Int {
        guard at >= 0, at <= bytes.count, width <= bytes.count - at else {
            throw BinaryPropertyList.malformed
        }
        let value = bytes[at..<(at + width)].reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
        // No offset or count can be larger than the largest list.
        guard value <= UInt64(Entitlements.maximumBytes) else { throw BinaryPropertyList.malformed }
        return Int(value)
    }
}
