import WardConsole
import WardSimulation

extension Finding.Kind {
    /// The meaning in one line.
    var meaning: String {
        switch self {
        case .protectedSynced: "class A, B or CX where a program synchronises"
        case .readableCopy: "a file readable while locked copies one of class A or B"
        case .sideFileClass: "a database's side file has another class than it should"
        case .backgroundClassA: "class A, and the app runs in the background"
        case .containerClass: "a container's class is not what its app's entitlement says"
        case .protectedTemporary: "class A, B or CX in tmp"
        case .removedUnread: "a file that could not be read was deleted or replaced"
        case .weakened: "a file is in a weaker class than was asked for it, or than it had before"
        }
    }

    /// The next step for the user. `top`: the mount point, quoted for a shell.
    func advice(_ top: String) -> String {
        switch self {
        case .protectedSynced:
            "move it to another directory, or give it up to what synchronises: ward class set C FILE"
        case .sideFileClass: "give it the class that is said: ward class set CLASS FILE"
        case .readableCopy: "delete the copy, or protect it as well: ward class set A FILE"
        case .backgroundClassA:
            "a program that writes while locked wants class B, one that reads class C: "
                + "ward class set C FILE"
        case .containerClass: "convert what is there: ward class set CLASS DIRECTORY -R"
        case .protectedTemporary: "move it to Documents or Library"
        case .weakened: "unlock, then give it the class: ward class set CLASS FILE"
        case .removedUnread: "look for it in a backup; ward events \(top) says who did it"
        }
    }

    /// A table of names and meanings, for the help.
    static var table: String {
        allCases.map { "  \(Text.padded($0.rawValue, 20)) \($0.meaning)" }.joined(separator: "\n")
    }
}
