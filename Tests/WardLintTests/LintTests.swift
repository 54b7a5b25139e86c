import Foundation
import Testing

@testable import WardLint

struct LintTests {
    @Test(
        "a file of nothing but openings is read to its end",
        arguments: [#""\("#, "#if !", "#if (", "/*", "(", "{"])
    func openings(_ opening: String) {
        let directive = opening.hasPrefix("#if ") ? "#if " : ""
        let repeated = String(opening.dropFirst(directive.count))
        let source = directive + String(repeating: repeated, count: 200_000) + "\n"
        #expect(LintedFile(source: Array(source.utf8)).findings(inAdoptingTarget: true).isEmpty)
    }

    private func findings(_ source: String, inAdoptingTarget: Bool = true) -> [String] {
        LintedFile(source: Array(source.utf8)).findings(inAdoptingTarget: inAdoptingTarget).map {
            "\($0.line):\($0.column) \($0.rule.rawValue) \($0.name)"
        }
    }

    @Test("protection without the library does nothing, and is found")
    func unprotected() {
        let source = """
            import Foundation
            func save(_ data: Data, _ url: URL) throws {
                try data.write(to: url, options: [.atomic, .completeFileProtection])
                try FileManager.default.setAttributes(
                    [.protectionKey: FileProtectionType.complete], ofItemAtPath: url.path)
            }
            """
        #expect(
            findings(source, inAdoptingTarget: false) == [
                "3:49 unprotected completeFileProtection",
                "5:11 unprotected protectionKey",
                "5:26 unprotected FileProtectionType",
            ])
        #expect(
            findings(source) == [
                "3:14 plainWrite write",
                "3:49 unprotected completeFileProtection",
                "4:29 plainWrite setAttributes",
                "5:11 unprotected protectionKey",
                "5:26 unprotected FileProtectionType",
            ])
        let adopted = source.replacingOccurrences(
            of: "import Foundation", with: "import DataProtection")
        #expect(findings(adopted).isEmpty)
    }

    @Test("imports of whole modules that have the same calls are ambiguous, scoped ones are not")
    func imports() {
        #expect(
            findings(
                """
                import \(LintRules.library)
                public import Foundation
                @preconcurrency import FoundationEssentials; import XCTest
                import class XCTest.XCTestCase
                import struct Foundation.Data
                import FoundationNetworking
                import Testing
                """) == [
                    "2:8 ambiguousImport Foundation",
                    "3:17 ambiguousImport FoundationEssentials",
                    "3:46 ambiguousImport XCTest",
                ])
    }

    @Test("in extensions of Foundation's types calls need no dot; streams are no files")
    func extensions() {
        #expect(
            findings(
                """
                import Foundation
                extension FileManager {
                    func make(_ path: String) throws {
                        if path.isEmpty { createFile(atPath: path, contents: nil) }
                        try moveItem(atPath: path, toPath: path)
                    }
                    func createFile(at path: String) {}
                }
                extension Data { func save(_ url: URL) throws { try write(to: url) } }
                struct Mine { func save() { write(to: 1) } }
                func show(_ text: inout String) { "a".write(to: &text) }
                """) == [
                    "4:27 plainWrite createFile", "5:13 plainWrite moveItem",
                    "9:53 plainWrite write",
                ])
    }

    @Test("comments, texts and expressions in other quotes are no code")
    func literals() {
        let source = ##"""
            // x.completeFileProtection
            /* a /* nested */ .protectionKey */
            let a = ".protectionKey \(f(")", #"\#(")")"#)) FileProtectionType"
            let b = #"a " FileProtectionType \("# + #/ \/ .protectionKey "/#.pattern
            let c = """
                " FileProtectionType \"""
                """
            let d = "not closed
            let e = FileProtectionType.none
            """##
        #expect(findings(source) == ["9:9 unprotected FileProtectionType"])
    }

    @Test("branches that Linux does not compile do not count")
    func conditions() {
        #expect(
            findings(
                """
                #if os(Linux) && !DEBUG || canImport(DataProtection)
                import \(LintRules.library)
                #else
                import Foundation
                #endif
                #if canImport(UIKit)
                import XCTest
                #elseif targetEnvironment(simulator)
                import Foundation
                #elseif DEBUG
                import FoundationEssentials
                #else
                import XCTest
                #endif
                """) == [
                    "11:1 ambiguousImport FoundationEssentials", "13:1 ambiguousImport XCTest",
                ])
    }

    @Test("a test file that imports XCTest alone is told of the library that is for it")
    func xctest() {
        let source = "import XCTest\nclass T: XCTestCase { let a = FileProtectionType.none }\n"
        func hints(_ source: String) -> [String] {
            LintedFile(source: Array(source.utf8)).findings(inAdoptingTarget: true).map(\.hint)
        }
        #expect(hints(source) == ["import DataProtectionXCTest in place of XCTest"])
        #expect(
            hints("import \(LintRules.library)\nimport XCTest\n")
                == ["import DataProtectionXCTest in place of both"])
        #expect(
            hints("import Foundation\n" + source)
                == ["import DataProtection in place of Foundation"])
        let shim = source.replacingOccurrences(
            of: "import XCTest", with: "import DataProtectionXCTest")
        #expect(findings(shim).isEmpty)
        #expect(
            findings("import DataProtectionXCTest\nimport XCTest")
                == ["2:1 ambiguousImport XCTest"])
    }

    @Test("protection that only other platforms compile is found, one that Linux has is not")
    func notCompiled() {
        for condition in [
            "os(iOS)", "!os(Linux)", "targetEnvironment(simulator)", "canImport(UIKit)",
            "os(iOS) && !targetEnvironment(simulator)", "os(iOS) || os(watchOS)", "false",
        ] {
            let source = """
                import \(LintRules.library)
                #if \(condition)
                try data.write(to: url, options: [.atomic, .completeFileProtection])
                #else
                try data.write(to: url, options: .atomic)
                #endif
                """
            #expect(
                findings(source) == ["3:45 notCompiled completeFileProtection"], "\(condition)")
        }
        #expect(
            findings("#if os(iOS)\nlet a = b | SQLITE_OPEN_FILEPROTECTION_NONE\n#endif")
                == ["2:13 notCompiled SQLITE_OPEN_FILEPROTECTION_NONE"])
        // The branch after the one that Linux takes; the same within another branch; a file with
        // only such a branch and no end.
        #expect(
            findings(
                """
                #if os(Linux)
                import \(LintRules.library)
                #else
                #if DEBUG
                let a = FileProtectionType.complete
                #endif
                #endif
                """) == ["5:9 notCompiled FileProtectionType"])
        #expect(
            findings("#if os(iOS)\nimport Foundation\nlet a = URLFileProtection.complete\n")
                == ["3:9 notCompiled URLFileProtection"])
        // Linux has the call, too: in another branch, or perhaps in this one.
        for source in [
            "#if os(iOS)\nf(.protectionKey)\n#elseif os(Linux)\nf(.protectionKey)\n#endif",
            "#if os(iOS) || os(Linux)\nf(.protectionKey)\n#endif",
            "#if canImport(\(LintRules.library))\nf(.protectionKey)\n#endif",
            "#if DEBUG\nf(.protectionKey)\n#endif",
            "#if canImport(DataProtectionXCTest)\nf(.protectionKey)\n#endif",
            "#if os(iOS)\n// .protectionKey\nf(\".protectionKey\")\n#endif",
        ] {
            #expect(findings("import \(LintRules.library)\n" + source).isEmpty, "\(source)")
        }
    }

    @Test(
        "what cannot be cut into words harms nothing",
        arguments: ["", "\"", "/*", "#", "#\"", "\"\\(", "`", "import"])
    func broken(_ source: String) {
        #expect(findings(source).isEmpty)
        #expect(findings(source + "\n\u{0}\u{FF}\r\n").isEmpty)
    }

    @Test("a package: its own sources only, writes only beside files that import the library")
    func package() throws {
        let root = FileManager.default.temporaryDirectory.appendingPathComponent(
            "ward-lint-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: root) }
        let write = "import Foundation\nfunc f() throws { try Data().write(to: u) }\n"
        for (path, source) in [
            "Package.swift": "import Foundation\nlet a = FileProtectionType.none",
            "Sources/App/A.swift": "import DataProtection\n",
            "Sources/App/Deep/B.swift": write,
            "Sources/Other/C.swift": write,
            ".build/checkouts/X/Sources/X/D.swift": "let a = FileProtectionType.none",
        ] {
            let file = root.appendingPathComponent(path)
            try FileManager.default.createDirectory(
                at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
            try Data(source.utf8).write(to: file)
        }
        try FileManager.default.createSymbolicLink(
            at: root.appendingPathComponent("Sources/loop"), withDestinationURL: root)
        let linted = try LintedPackage(at: root.path)
        #expect(linted.unreadable.isEmpty)
        #expect(
            linted.files.map(\.path) == [
                "Sources/App/A.swift", "Sources/App/Deep/B.swift", "Sources/Other/C.swift",
            ])
        #expect(linted.reports.map(\.path) == ["Sources/App/Deep/B.swift"])
        #expect(linted.reports.first?.findings.map(\.name) == ["write"])
        #expect(throws: (any Error).self) { try LintedPackage(at: root.path + "/missing") }
    }
}
