import ArgumentParser

/// The command line of `ward lint`. The program `ward` has it for help, completions and mistakes;
/// the program `ward-lint` does the work.
package struct LintOptions: ParsableArguments {
    @Argument(help: "A package, a directory or a Swift file.", completion: .file())
    package var path: String = "."
    @OptionGroup package var report: ReportOptions

    package init() {}

    /// The help of a command with these options.
    package static func configuration(
        commandName: String, version: String = ""
    ) -> CommandConfiguration {
        CommandConfiguration(
            commandName: commandName,
            abstract: "Find Swift files that ask for file protection and would not get it.",
            discussion: """
                On Linux, Foundation accepts protection classes and forgets them; the module \
                DataProtection gives them their meaning. This finds what the compiler does not \
                mention: files that use protection without importing DataProtection, files that \
                write beside others that import it, imports that make its calls ambiguous, and \
                protection that stands only in a branch of #if that Linux does not compile, as of \
                #if os(iOS).

                Exit code 1 where something was found.

                Examples:
                  ward lint
                  ward lint ~/src/RunTracker
                  ward lint --json | jq -r .path | sort -u
                """,
            version: version)
    }
}
