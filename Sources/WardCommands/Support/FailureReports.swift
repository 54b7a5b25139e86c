import WardConsole

/// Failures of a command that goes on after each. The first are printed at once, the others at the
/// end, grouped by reason. When quiet, all of them are grouped.
struct FailureReports {
    /// The number of failures printed one by one.
    static let most = 10

    private struct Group {
        var first: CommandFailure
        var count = 1
    }

    private let console: Console
    private(set) var count = 0
    /// Failures not printed yet, in the order of their first occurrence.
    private var groups: [Group] = []
    private var places: [String: Int] = [:]

    init(_ console: Console) { self.console = console }

    mutating func add(_ failure: CommandFailure) {
        count += 1
        if !console.isQuiet, count <= FailureReports.most {
            return console.failure(failure)
        }
        let reason = failure.what + ": " + failure.why
        if let place = places[reason] {
            groups[place].count += 1
        } else {
            places[reason] = groups.count
            groups.append(Group(first: failure))
        }
    }

    /// Prints the remaining failures.
    mutating func finish() {
        for group in groups {
            var failure = group.first
            if group.count > 1 {
                failure.subject =
                    (failure.subject ?? "it") + " and \(Text.grouped(group.count - 1)) more"
            }
            console.failure(failure)
        }
        groups = []
        places = [:]
    }
}
