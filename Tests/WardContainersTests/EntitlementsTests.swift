import Foundation
import Testing

@testable import WardContainers

/// Property lists as Xcode writes them, and hostile ones.
@Suite struct EntitlementsTests {
    private static func xml(_ inside: String) -> [UInt8] {
        Array(
            """
            <?xml version="1.0" encoding="UTF-8"?>
            <!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" \
            "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
            <plist version="1.0">
            <dict>
            \(inside)
            </dict>
            </plist>

            """.utf8)
    }

    private static func pair(_ key: String, _ value: String) -> String {
        "\t<key>\(key)</key>\n\t\(value)\n"
    }

    private static let full =
        pair(
            "com.apple.developer.default-data-protection",
            "<string>NSFileProtectionComplete</string>")
        + pair(
            "com.apple.security.application-groups",
            "<array><string>group.b</string><string>group.a</string><string>group.b</string></array>"
        )
        + pair("com.apple.developer.team-identifier", "<string>ABCDE12345</string>")
        + pair("application-identifier", "<string>OLDPREFIX1.org.example.diary</string>")
        + pair("aps-environment", "<string>development</string>")
        + pair("get-task-allow", "<true/>")
        + pair("keychain-access-groups", "<array><string>$(AppIdentifierPrefix)x</string></array>")

    private func binary(_ list: Any) throws -> [UInt8] {
        Array(
            try PropertyListSerialization.data(fromPropertyList: list, format: .binary, options: 0))
    }

    private func refusal(_ bytes: [UInt8]) -> EntitlementsError? {
        do throws(EntitlementsError) {
            _ = try Entitlements(propertyList: bytes)
            return nil
        } catch {
            return error
        }
    }

    @Test("XML and binary say the same")
    func forms() throws {
        let fromXML = try Entitlements(propertyList: Self.xml(Self.full))
        #expect(fromXML.dataProtection == "NSFileProtectionComplete")
        #expect(fromXML.groups.map(\.text) == ["group.a", "group.b"])
        #expect(fromXML.team == "ABCDE12345")
        let list = try PropertyListSerialization.propertyList(
            from: Data(Self.xml(Self.full)), format: nil)
        #expect(try Entitlements(propertyList: binary(list)) == fromXML)
        // With the byte order mark that some editors put in front.
        #expect(
            try Entitlements(propertyList: [0xEF, 0xBB, 0xBF] + Self.xml(Self.full)) == fromXML)
    }

    @Test("an empty dictionary is entitled to nothing")
    func empty() throws {
        #expect(try Entitlements(propertyList: Self.xml("")) == Entitlements())
        #expect(try Entitlements(propertyList: binary([String: String]())) == Entitlements())
    }

    @Test("the team is the identifier's, else the prefix of the app's; unknown before Xcode signs")
    func teams() throws {
        let team = "com.apple.developer.team-identifier"
        for (inside, expected) in [
            (
                Self.pair("application-identifier", "<string>ABCDE12345.org.x</string>"),
                "ABCDE12345"
            ),
            (Self.pair("com.apple.application-identifier", "<string>T1.*</string>"), "T1"),
            (Self.pair("application-identifier", "<string>$(AppIdentifierPrefix)x</string>"), nil),
            (Self.pair(team, "<string>$(TeamIdentifier)</string>"), nil), ("", nil),
        ] as [(String, String?)] {
            #expect(try Entitlements(propertyList: Self.xml(inside)).team == expected)
        }
        for bad in ["../x", "", "A B", String(repeating: "A", count: 65)] {
            #expect(refusal(Self.xml(Self.pair(team, "<string>\(bad)</string>"))) != nil)
        }
        #expect(
            refusal(Self.xml(Self.pair("application-identifier", "<string>nodot</string>")))?
                .reason.contains("no team before a dot") == true)
    }

    @Test("every class that protects may be given; the names of long ago are read as today's")
    func classes() throws {
        for (text, expected) in [
            ("NSFileProtectionComplete", "NSFileProtectionComplete"),
            ("NSFileProtectionCompleteUnlessOpen", "NSFileProtectionCompleteUnlessOpen"),
            (
                "NSFileProtectionCompleteUntilFirstUserAuthentication",
                "NSFileProtectionCompleteUntilFirstUserAuthentication"
            ),
            (
                "NSFileProtectionCompleteWhenUserInactive",
                "NSFileProtectionCompleteWhenUserInactive"
            ),
            ("NSFileProtectionWriteOnly", "NSFileProtectionCompleteUnlessOpen"),
        ] {
            #expect(try Entitlements(dataProtection: text).dataProtection == expected)
        }
    }

    @Test("NSFileProtectionNone and unknown values are refused with the reason")
    func refusedClasses() throws {
        let key = "com.apple.developer.default-data-protection"
        let none = refusal(Self.xml(Self.pair(key, "<string>NSFileProtectionNone</string>")))
        #expect(none?.reason.contains("can't take protection away") == true)
        #expect(none?.advice?.contains("leave the key out") == true)
        for text in [
            "Complete", "A", "none", "NSFileProtectionCOMPLETE", "", "NSFileProtectionComplete ",
        ] {
            let error = refusal(Self.xml(Self.pair(key, "<string>\(text)</string>")))
            #expect(error?.reason.contains("no protection class") == true, "\(text)")
            #expect(error?.advice?.contains("NSFileProtectionCompleteUnlessOpen") == true)
        }
        #expect(
            refusal(Self.xml(Self.pair(key, "<integer>1</integer>")))?.reason == key
                + " is no string")
    }

    @Test("groups: not a list, not strings, impossible names, too many")
    func refusedGroups() throws {
        let key = "com.apple.security.application-groups"
        func groups(_ inside: String) -> EntitlementsError? {
            refusal(Self.xml(Self.pair(key, inside)))
        }
        #expect(groups("<string>group.a</string>")?.reason == key + " is no list of strings")
        #expect(
            groups("<array><integer>1</integer></array>")?.reason == key + " is no list of strings")
        for bad in ["", "../../x", ".", "a/b"] {
            #expect(
                groups("<array><string>\(bad)</string></array>")?.reason.contains("'\(bad)'")
                    == true)
        }
        let variable = groups("<array><string>$(TeamIdentifierPrefix)org.x</string></array>")
        #expect(variable?.advice?.contains("codesign") == true)
        let many = (0..<33).map { "<string>group.\($0)</string>" }.joined()
        #expect(groups("<array>\(many)</array>")?.reason.contains("33 groups") == true)
    }

    @Test(
        "malformed: said so, in words",
        arguments: [
            ("", "empty"), ("{ a = b; }", "neither"), ("{\"a\": 1}", "neither"),
            ("((((", "neither"),
            ("\u{0}\u{1}", "neither"), ("<html></html>", "neither"), ("<plist>", "malformed"),
            ("<plist version=\"1.0\"><dict><key>a</key></dict></plist>", "malformed"),
            ("<plist version=\"1.0\"><dict></plist>", "malformed"), ("<?xml", "ends early"),
            ("<plist version=\"1.0\"><array/></plist>", "no dictionary"),
            ("<plist version=\"1.0\"><string>x</string></plist>", "no dictionary"),
            ("<!-- never ends", "ends early"), ("bplist00", "binary"), ("bplist", "binary"),
            ("bplist00" + String(repeating: "\u{0}", count: 40), "binary"),
            (
                "<!DOCTYPE plist [<!ENTITY a \"b\">]><plist version=\"1.0\"><dict/></plist>",
                "entities"
            ),
        ])
    func malformed(_ text: String, _ reason: String) {
        let error = refusal(Array(text.utf8))
        #expect(error?.reason.contains(reason) == true, "\(error?.reason ?? "no error")")
    }

    @Test("huge and deeply nested: refused before Foundation reads them")
    func limits() throws {
        let huge = Self.xml(
            "<key>a</key><string>" + String(repeating: "x", count: 300_000) + "</string>")
        #expect(refusal(huge)?.reason.contains("larger than 256 KiB") == true)
        func nested(_ depth: Int) -> [UInt8] {
            Self.xml(
                "<key>a</key>" + String(repeating: "<array>", count: depth)
                    + String(repeating: "</array>", count: depth))
        }
        #expect(refusal(nested(20)) == nil)
        #expect(refusal(nested(15_000))?.reason.contains("nested") == true)
        // Processing instructions end where they end for Foundation.
        let instruction = "<?>" + String(repeating: "<array>", count: 14_000) + "?>"
        #expect(refusal(Self.xml(instruction))?.reason.contains("nested") == true)
        let name = String(repeating: "x", count: 200_000)
        let long = Self.xml(
            "<key>com.apple.security.application-groups</key><array><string>\(name)</string></array>"
        )
        #expect(refusal(long).map { $0.reason.utf8.count < 400 } == true)
        // Text that only looks like nesting does not count.
        let comments = "<!--" + String(repeating: "<array>", count: 100) + "-->"
        let text =
            "<key>a</key><string><![CDATA[" + String(repeating: "<array>", count: 100)
            + "]]></string>"
        #expect(refusal(Self.xml(comments + text)) == nil)
        let many = String(repeating: "<key>a</key><true/>", count: 12_000)
        #expect(refusal(Self.xml(many))?.reason.contains("20000 values") == true)

        var list: Any = "end"
        for _ in 0..<100 { list = [list] }
        #expect(refusal(try binary(["a": list]))?.reason.contains("nested") == true)
    }

    /// A binary list of arrays whose elements are references, made by hand.
    private func binaryArrays(_ references: [[UInt8]]) -> [UInt8] {
        var bytes = Array("bplist00".utf8)
        var offsets: [UInt8] = []
        for list in references {
            offsets.append(UInt8(bytes.count))
            bytes.append(0xA0 | UInt8(list.count))
            bytes += list
        }
        let table = bytes.count
        bytes += offsets + [0, 0, 0, 0, 0, 0, 1, 1]
        for number in [references.count, 0, table] {
            bytes += (0..<8).map { UInt8(truncatingIfNeeded: number >> (56 - 8 * $0)) }
        }
        return bytes
    }

    @Test("a binary list that holds itself, or the same ten things ten levels deep")
    func references() {
        #expect(refusal(binaryArrays([[0]]))?.reason.contains("nested") == true)
        #expect(refusal(binaryArrays([[1], [0]]))?.reason.contains("nested") == true)
        let levels = (1...10).map { [UInt8](repeating: UInt8($0), count: 10) } + [[]]
        #expect(refusal(binaryArrays(levels))?.reason.contains("20000 values") == true)
        #expect(refusal(binaryArrays([[7]]))?.reason.contains("binary") == true)
        #expect(refusal(binaryArrays([[]]))?.reason.contains("no dictionary") == true)
    }

    @Test("changed and cut bytes: entitlements or an error, never the end of the program")
    func mutations() throws {
        let xml = Self.xml(Self.full)
        let list = try PropertyListSerialization.propertyList(from: Data(xml), format: nil)
        var random = SystemRandomNumberGenerator()
        for original in [xml, try binary(list)] {
            for count in 0..<original.count { _ = refusal(Array(original[..<count])) }
            for index in original.indices {
                var changed = original
                changed[index] = UInt8.random(in: 0...255, using: &random)
                _ = refusal(changed)
                changed[Int.random(in: original.indices, using: &random)] = 0xFF
                _ = refusal(changed)
                changed.remove(at: index)
                _ = refusal(changed)
            }
        }
    }
}
