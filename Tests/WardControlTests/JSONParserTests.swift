import Testing
import WardSystem

@testable import WardControl

@Suite struct JSONParserTests {
    @Test(
        "what parses is written again as the same text",
        arguments: [
            "null", "true", "[]", "{}", "[1,-2,9007199254740993]", #"{"a":[{"b":"c"}],"d":1.5}"#,
            #""\"\\ü€😀""#, #""\u0000\u001f\u007f""#,
        ])
    func roundTrip(_ text: String) throws {
        #expect(try JSONParser.parse(Array(text.utf8)).text() == text)
    }

    @Test func numbersKeepTheirKind() throws {
        #expect(try JSONParser.parse(Array("-0".utf8)) == .int(0))
        #expect(try JSONParser.parse(Array("1e3".utf8)) == .double(1000))
        #expect(try JSONParser.parse(Array("9223372036854775808".utf8)) == .double(0x1p63))
    }

    @Test func controlCharactersAreWrittenEscaped() throws {
        let text = "a\u{1B}\u{7F}\u{80}\u{9B}\u{9F}\u{A0}é\u{FB}\n"
        let written = JSONValue.object([("k\u{85}", .string(text))]).text()
        #expect(
            written
                == "{\"k\\u0085\":\"a\\u001b\\u007f\\u0080\\u009b\\u009f\u{A0}é\u{FB}\\u000a\"}")
        #expect(try JSONParser.parse(Array(written.utf8))["k\u{85}"]?.stringValue == text)
    }

    @Test func escapesAndSurrogates() throws {
        let text = #""\b\f\n\r\t\/\u00e9\u20AC\ud83d\ude00""#
        #expect(try JSONParser.parse(Array(text.utf8)) == .string("\u{8}\u{c}\n\r\t/é€😀"))
    }

    @Test(
        "what is not JSON, or too much of it, is refused",
        arguments: [
            "", " ", "{", "[1,]", "{\"a\":1,}", "{\"a\" 1}", "{a:1}", "01", "1.", "+1", "nul",
            "1 2", "\"",
            "\"\\", "\"\\x\"", "\"\\u12\"", "\"\\ud800\"", "\"\\udc00\"", "\"\\ud800\\u0041\"",
            "\"\u{1}\"",
            "{\"a\":1,\"a\":2}", "1e999", String(repeating: "[", count: 100), "\u{feff}1",
        ])
    func refused(_ text: String) {
        #expect(throws: JSONError.self) { try JSONParser.parse(Array(text.utf8)) }
    }

    @Test func manyMembersCostLittle() throws {
        let members = (0..<9000).map { "\"\(String($0, radix: 16))\":0" }
        let text = Array("{\(members.joined(separator: ","))}".utf8)
        let took = try ContinuousClock().measure { _ = try JSONParser.parse(text) }
        #expect(took < .seconds(20), "40 million comparisons: \(took)")
        var copy = text
        #expect(throws: JSONError.self) {
            try copy.withUnsafeMutableBytes { try JSONParser.parse($0, maximumValues: 100) }
        }
        var small = Array(#"{"a":[1,2,{"b":3}]}"#.utf8)
        #expect(throws: JSONError.self) {
            try small.withUnsafeMutableBytes { try JSONParser.parse($0, maximumValues: 5) }
        }
        #expect(
            try small.withUnsafeMutableBytes { try JSONParser.parse($0, maximumValues: 6) } != .null
        )
    }

    @Test func notUTF8IsRefused() {
        #expect(throws: JSONError.self) { try JSONParser.parse([0x22, 0xff, 0x22]) }
    }

    @Test func everyPrefixIsRefused() {
        let text = Array(
            #"{"method":"a.B","parameters":{"x":[1,"\ud83d\ude00",null],"y":-1.5e+3}}"#.utf8)
        for count in 0..<text.count {
            #expect(throws: JSONError.self, "\(count) bytes") {
                try JSONParser.parse(Array(text[..<count]))
            }
        }
    }

    // MARK: Secrets

    /// Parses with `passcode` as a secret. Returns the secret, and the text as the parser leaves
    /// it.
    private func parseSecret(_ text: String) throws -> (secret: [UInt8]?, left: [UInt8]) {
        var bytes = Array(text.utf8)
        let value = try bytes.withUnsafeMutableBytes {
            try JSONParser.parse($0, secretMembers: ["passcode"])
        }
        let secret = value["parameters"]?["passcode"]?.secretValue
        return (secret?.bytes.withUnsafeBytes { Array($0) }, bytes)
    }

    @Test(
        arguments: [
            (#"hunter2"#, "hunter2"), (#"\u0068unter2"#, "hunter2"),
            (#"a\"b\\c\/d\n"#, "a\"b\\c/d\n"),
            (#"\u00e9\u20ac\ud83d\ude00"#, "é€😀"), ("", ""), ("\\u0000", "\0"),
        ])
    func secretIsUnescapedAndWiped(_ escaped: String, _ plain: String) throws {
        let text = #"{"method":"m","parameters":{"passcode":"\#(escaped)","now":true}}"#
        let (secret, left) = try parseSecret(text)
        #expect(secret == Array(plain.utf8))
        let name = #""passcode":"#
        let start = text.utf8.count - text[text.firstRange(of: name)!.upperBound...].utf8.count
        let wiped = left[start..<start + escaped.utf8.count + 2]
        #expect(wiped.allSatisfy { $0 == 0 }, "the secret's place must be empty")
    }

    @Test func aSecretUnderAnEscapedNameIsOne() throws {
        let (secret, _) = try parseSecret(#"{"parameters":{"pass\u0063ode":"x"}}"#)
        #expect(secret == Array("x".utf8))
    }

    @Test(
        "a secret that is no string is refused unread",
        arguments: [
            #"["x"]"#, #"{"y":"x"}"#, "1", "true", #""x"#, #""\ud800""#,
        ])
    func secretOfAnotherKind(_ value: String) {
        #expect(throws: JSONError.self) {
            try parseSecret(#"{"parameters":{"passcode":\#(value)}}"#)
        }
    }

    @Test func aHugeSecret() throws {
        let plain = String(repeating: "ä", count: 20_000)
        let (secret, left) = try parseSecret(#"{"parameters":{"passcode":"\#(plain)"}}"#)
        #expect(secret?.count == 40_000)
        #expect(!left.contains(0xc3))
    }

    @Test func aSecretIsNeverWritten() throws {
        let secret = JSONValue.secret(JSONValue.Secret(try SecretBytes(random: 32)))
        #expect(JSONValue.object([("passcode", secret)]).text() == #"{"passcode":null}"#)
    }
}
