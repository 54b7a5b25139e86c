import Testing

@testable import WardCommands

@Suite struct MountSettingsTests {
    private func request(_ settings: MountSettings) throws -> MountRequest {
        try MountRequest(volume: "/", mountPoint: "/tmp", settings: settings)
    }

    @Test(
        "a daemon in the background gets each setting",
        arguments: MountSettings.flags.map { [$0.word] } + [
            [], ["--grace", "1.5"], ["--transport", "device"], ["--log", "/tmp/ward.log"],
            ["--without-rules", "poll,yield"],
        ])
    func daemonGetsSettings(words: [String]) throws {
        let asked = try request(MountSettings.parse(words))
        #expect(Set(asked.arguments).isSuperset(of: words))
        let flags = MountSettings.flags.filter { asked.options[keyPath: $0.option] }
        #expect(flags.map(\.word) == words.filter { MountSettings.flags.map(\.word).contains($0) })
        // The first two words are the program and the command.
        let child = try MountCommand.parse(asked.arguments.dropFirst(2) + ["--", "/", "/tmp"])
        #expect(try request(child.settings).arguments == asked.arguments)
    }

    @Test("each flag has a row in the table")
    func flagsAreComplete() throws {
        let settings = Mirror(reflecting: try MountSettings.parse([])).children.compactMap(\.label)
        let others: Set = ["grace", "transport", "log", "withoutRules"]
        let flags = settings.map { $0.hasPrefix("_") ? String($0.dropFirst()) : $0 }
            .filter { !others.contains($0) }
        #expect(flags.count == MountSettings.flags.count, "\(flags)")
    }
}
