import ArgumentParser

/// Options of every command.
package struct GeneralOptions: ParsableArguments {
    @Flag(name: .shortAndLong, help: "Print only results and errors.")
    package var quiet = false

    @Flag(name: .customLong("no-input"), help: "Never ask; fail where a question would be needed.")
    package var noInput = false

    package init() {}

    package var console: Console { Console(isQuiet: quiet, mayAsk: !noInput) }
}

/// Additional options of commands that report.
package struct ReportOptions: ParsableArguments {
    @OptionGroup package var general: GeneralOptions

    @Flag(help: "Print JSON, one object a line.")
    package var json = false

    package init() {}

    package var console: Console {
        var console = general.console
        console.isJSON = json
        return console
    }
}
