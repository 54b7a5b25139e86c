import Glibc
import WardSystem

/// Helpers for text that users see.
package enum Text {
    /// Escapes control characters, so that a file name can't control the terminal. Also escapes
    /// characters that reorder text (UAX 9) or end a line, so that a name can't look like another
    /// one.
    package static func printable(_ text: String) -> String {
        var result = ""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "\n": result += "\\n"
            case "\t": result += "\\t"
            case "\r": result += "\\r"
            case _ where isHarmful(scalar):
                result += "\\u{\(String(scalar.value, radix: 16))}"
            default: result.unicodeScalars.append(scalar)
            }
        }
        return result
    }

    package static func printable(_ text: Substring) -> String { printable(String(text)) }

    private static func isHarmful(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar.value {
        case 0..<0x20, 0x7F...0x9F, 0x2028...0x202E, 0x2066...0x2069: true
        default: false
        }
    }

    /// A name's bytes as text; invalid UTF-8 becomes U+FFFD.
    package static func printable(_ bytes: [UInt8]) -> String {
        printable(String(decoding: bytes, as: UTF8.self))
    }

    package static func oneLine(_ text: String) -> String {
        guard text.unicodeScalars.contains(where: isHarmful) else { return text }
        return text.split(whereSeparator: \.isNewline).map { printable($0) }
            .joined(separator: "; ")
    }

    /// strerror(3) with a small first letter, for use after a colon.
    package static func reason(_ errno: Errno) -> String {
        lowerFirst(String(cString: strerror(errno.rawValue)))
    }

    /// "No such file" becomes "no such file"; "FUSE failed" stays.
    package static func lowerFirst(_ text: String) -> String {
        guard let first = text.first else { return text }
        if let second = text.dropFirst().first, second.isUppercase { return text }
        return first.lowercased() + text.dropFirst()
    }

    /// A number with its noun: "1 file", "2 files".
    package static func count(_ number: Int, _ noun: String) -> String {
        if number == 1 { return "1 \(noun)" }
        let plural =
            noun.hasSuffix("y")
            ? noun.dropLast() + "ies" : noun.hasSuffix("s") ? noun + "es" : noun + "s"
        return "\(grouped(number)) \(plural)"
    }

    /// Groups digits by thousands: 12,345.
    package static func grouped(_ number: Int) -> String {
        var digits = ""
        // `abs` overflows for the least number.
        for (index, digit) in String(number.magnitude).reversed().enumerated() {
            if index > 0 && index % 3 == 0 { digits.append(",") }
            digits.append(digit)
        }
        return (number < 0 ? "-" : "") + String(digits.reversed())
    }

    /// A size: "512 bytes", "1.5 MiB".
    package static func size(bytes: Int) -> String {
        if bytes < 1024 { return count(bytes, "byte") }
        var value = Double(bytes)
        var unit = ""
        for larger in ["KiB", "MiB", "GiB", "TiB"] where value >= 1024 {
            value /= 1024
            unit = larger
        }
        let tenths = (value * 10).rounded() / 10
        return (tenths < 10 ? "\(tenths)" : "\(Int(value.rounded()))") + " " + unit
    }

    /// A duration: "10 s", "1.5 s", "2 min", "3 h 20 min".
    package static func duration(seconds: Double) -> String {
        if seconds < 60 {
            let tenths = (seconds * 10).rounded() / 10
            return tenths == tenths.rounded() ? "\(whole(tenths)) s" : "\(tenths) s"
        }
        let minutes = whole((seconds / 60).rounded(.up))
        if minutes < 60 { return "\(minutes) min" }
        return minutes % 60 == 0 ? "\(minutes / 60) h" : "\(minutes / 60) h \(minutes % 60) min"
    }

    /// A measured duration: "0.3 ms", "45 ms", "1.25 s".
    package static func preciseDuration(seconds: Double) -> String {
        func rounded(_ value: Double, _ digits: Double) -> String {
            let scaled = (value * digits).rounded() / digits
            return scaled == scaled.rounded() ? "\(whole(scaled))" : "\(scaled)"
        }
        if seconds < 0.01 { return rounded(seconds * 1000, 10) + " ms" }
        if seconds < 1 { return rounded(seconds * 1000, 1) + " ms" }
        return seconds < 60 ? rounded(seconds, 100) + " s" : duration(seconds: seconds)
    }

    /// The nearest Int: numbers from other programs may be out of range.
    package static func whole(_ value: Double) -> Int {
        Int(exactly: value.rounded()) ?? (value < 0 ? .min : .max)
    }

    /// Pads the text with spaces to `width` characters.
    package static func padded(_ text: String, _ width: Int) -> String {
        text + String(repeating: " ", count: max(0, width - text.count))
    }

    /// Pads the text with spaces on the left.
    package static func paddedLeft(_ text: String, _ width: Int) -> String {
        String(repeating: " ", count: max(0, width - text.count)) + text
    }

    /// Quotes a path for a shell where needed. Characters that `printable` escapes become `$'…'`
    /// (bash, zsh, ksh), so they do not reach the terminal.
    package static func shellQuoted(_ text: String) -> String {
        if text.unicodeScalars.contains(where: isHarmful) {
            var quoted = "$'"
            for scalar in text.unicodeScalars {
                switch scalar {
                case "'", "\\": quoted += "\\\(scalar)"
                case _ where isHarmful(scalar):
                    for byte in UTF8.encode(scalar)! {
                        quoted += (byte < 16 ? "\\x0" : "\\x") + String(byte, radix: 16)
                    }
                default: quoted.unicodeScalars.append(scalar)
                }
            }
            return quoted + "'"
        }
        let plain = text.utf8.allSatisfy { byte in
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "/"), UInt8(ascii: "."),
                UInt8(ascii: "-"), UInt8(ascii: "_"), UInt8(ascii: "+"), UInt8(ascii: ","),
                UInt8(ascii: ":"), UInt8(ascii: "="), UInt8(ascii: "@"), 0x80...0xFF:
                true
            default: false
            }
        }
        if plain && !text.isEmpty { return text }
        // Double quotes are easier to read around single ones, where no character in them is
        // special.
        if text.utf8.contains(UInt8(ascii: "'")),
            !text.utf8.contains(where: { "\"$`\\!".utf8.contains($0) })
        {
            return "\"" + text + "\""
        }
        return "'"
            + text.split(separator: "'", omittingEmptySubsequences: false)
            .joined(separator: "'\\''") + "'"
    }
}
