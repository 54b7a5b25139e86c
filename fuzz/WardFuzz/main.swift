import Glibc

//     WardFuzz --list              names and size limits of all parsers
//     WardFuzz NAME [libFuzzer's options] [DIRECTORY|FILE]…
//
// fuzz/run builds and calls it. libFuzzer starts this program again (-fork, -minimize_crash)
// without the name, which the environment then tells.

@_extern(c, "LLVMFuzzerRunDriver")
func runDriver(
    _ count: UnsafeMutablePointer<CInt>,
    _ arguments: UnsafeMutablePointer<UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>>,
    _ body: @convention(c) (UnsafePointer<UInt8>?, Int) -> CInt
) -> CInt

if CommandLine.arguments.dropFirst().first == "--list" {
    for parser in Parser.all { print(parser.name, parser.maximumBytes) }
    exit(0)
}

let variable = "WARD_FUZZ_PARSER"
var count = CommandLine.argc
var arguments = CommandLine.unsafeArgv
if count > 1, let name = arguments[1],
    Parser.all.contains(where: { $0.name == String(cString: name) })
{
    setenv(variable, name, 1)
    // libFuzzer takes the other arguments, after the program's own name.
    arguments[1] = arguments[0]
    arguments += 1
    count -= 1
}
let wanted = getenv(variable).map { String(cString: $0) }
guard let chosen = Parser.all.first(where: { $0.name == wanted }) else {
    let usage = "usage: WardFuzz NAME [OPTION]... [DIRECTORY|FILE]... or WardFuzz --list\n"
    write(2, usage, usage.utf8.count)
    exit(64)
}
Chosen.run = chosen.run

exit(
    runDriver(&count, &arguments) { bytes, count in
        Chosen.run(Array(UnsafeBufferPointer(start: bytes, count: count)))
        return 0
    })
