/// Failures of a command that goes on after each: the first are told as they come, the others at
/// the end, those with the same reason in one. Where output is quiet all of them are told so.
struct FailureReports {
    /// So many are told one by one.
    static let most = 10

    private struct Group {
        var first: CommandFailure
        var count = 1
    }

    private let console: Console
    private(set) var count = 0
    /// Failures that were not told, in the order in which their reasons came.
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

    /// Tells what was not told yet.
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
