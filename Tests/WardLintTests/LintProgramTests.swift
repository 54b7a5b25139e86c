import Foundation
import Testing
import WardTestSupport

/// `ward lint`, whose work another program does.
struct LintProgramTests {
    private let place: String
    private let built: String
    private let package: String

    init() throws {
        place = FileManager.default.temporaryDirectory.path + "/ward-lint-\(UUID().uuidString)"
        // Absolute: a link in another directory leads to it.
        built = URL(fileURLWithPath: try #require(TestEnvironment.builtProgram)).path
        package = place + "/package"
        try FileManager.default.createDirectory(
            atPath: package, withIntermediateDirectories: true)
        try "import Foundation\nlet a = FileProtectionType.complete\n".write(
            toFile: package + "/A.swift", atomically: false, encoding: .utf8)
    }

    private func run(_ words: [String]) throws -> Finished {
        try Child.run(words, environment: ["PATH": "/usr/bin:/bin", "HOME": place])
    }

    @Test("ward lint runs the program beside ward, also by a link to ward; its words are the same")
    func beside() throws {
        defer { try? FileManager.default.removeItem(atPath: place) }
        let link = place + "/ward"
        try FileManager.default.createSymbolicLink(atPath: link, withDestinationPath: built)
        let own = try run([built + "-lint", package])
        #expect(own.status == 1 && own.errors == "ward: note: 1 finding in 1 of 1 file\n")
        #expect(own.output.hasPrefix("A.swift:2:9: warning: "))
        for program in [built, link] {
            let done = try run([program, "lint", package])
            #expect(done.everything == own.everything)
        }
        let quiet = try run([built, "lint", "--json", "-q", "--", package])
        #expect(quiet.status == 1 && quiet.errors.isEmpty)
        #expect(quiet.output.hasPrefix("{\"path\":\"A.swift\",\"line\":2,"))
        #expect(try run([built, "lint", package + "/missing"]).status == 66)
    }

    @Test("help and mistakes in the words need no other program; without it the work says where")
    func missing() throws {
        defer { try? FileManager.default.removeItem(atPath: place) }
        let alone = place + "/ward"
        try Child.copyProgram(built, to: alone)
        let help = try run([alone, "lint", "--help"])
        #expect(help.succeeded && help.output.contains("USAGE: ward lint [<path>] "))
        let mistaken = try run([alone, "lint", "--nothing"])
        #expect(mistaken.status == 64 && mistaken.errors.hasSuffix("hint: ward lint --help\n"))
        let refused = try run([alone, "lint", package])
        #expect(refused.status == 69)
        #expect(
            refused.errors == """
                ward: error: cannot start \(alone)-lint: no such file or directory
                ward: hint: in the sources of ward: make && sudo make install

                """)
    }
}
