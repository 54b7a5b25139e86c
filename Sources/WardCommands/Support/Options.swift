import ArgumentParser

/// Options of every command.
struct GeneralOptions: ParsableArguments {
    @Flag(name: .shortAndLong, help: "Print only results and errors.")
    var quiet = false

    @Flag(name: .customLong("no-input"), help: "Never ask; fail where a question would be needed.")
    var noInput = false

    var console: Console { Console(isQuiet: quiet, mayAsk: !noInput) }
}

/// Additional options of commands that report.
struct ReportOptions: ParsableArguments {
    @OptionGroup var general: GeneralOptions

    @Flag(help: "Print JSON, one object a line.")
    var json = false

    var console: Console {
        var console = general.console
        console.isJSON = json
        return console
    }
}
