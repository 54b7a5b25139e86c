import Testing
import WardContainers

@Suite struct ContainerIDTests {
    @Test(
        "what names a container",
        arguments: [
            "org.example.diary", "group.org.example.shared_things", "A1B2C3D4E5.org.example", "x",
            "org.example.diary.widget-2", String(repeating: "x", count: 155),
        ])
    func allowed(_ text: String) throws {
        #expect(try ContainerID(text).text == text)
    }

    @Test(
        "slashes, dots, nothing, too much, control characters: refused with the reason",
        arguments: [
            ("", "empty"), (".", "dots"), ("..", "dots"), ("...", "dots"), ("../other", "slash"),
            ("a/b", "slash"), ("/etc", "slash"), (".hidden", "part between its dots"),
            ("a..b", "part between its dots"), ("a.", "part between its dots"),
            ("a\nb", "control"), ("a\u{0}b", "control"), ("\u{7F}", "control"),
            ("-rf", "hyphen"), ("a b", "U+0020"), ("tagebuch.ä", "U+00E4"),
            ("a\u{202E}b", "U+202E"), ("$(AppIdentifierPrefix)org.example", "Xcode fills in"),
            (String(repeating: "x", count: 156), "156 bytes"),
            (String(repeating: "x", count: 1 << 20), "1048576 bytes"),
        ])
    func refused(_ text: String, _ reason: String) throws {
        let error = #expect(throws: ContainerID.Invalid.self) { try ContainerID(text) }
        #expect(error?.reason.contains(reason) == true, "\(error?.reason ?? "")")
        #expect(error?.text == text)
    }
}
