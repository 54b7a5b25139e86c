/// The names that a power cut may leave: those that survive every cut, and those after each change
/// since.
struct NameHistory: Sendable {
    typealias Key = CrashModel.Key

    private struct Step: Sendable {
        var changes: [(Key, UInt64?)]
        /// False for a step that failed, and for the step that takes it back. It may be on the
        /// disk, but a sync of its names need not commit it.
        var isCertain = true
    }

    /// The names that survive every power cut, and each step since. On a disk with a journal, the
    /// names after a cut are those after one of these steps.
    private var base: [Key: UInt64]
    private var steps: [Step] = []
    /// The values of each entry since its directory was synced; for disks without a journal.
    private var histories: [Key: [UInt64?]] = [:]

    /// Begins with names that survive every power cut.
    init(durable names: [Key: UInt64] = [:]) { base = names }

    // MARK: Changing

    /// Adds one step, which changes `names`.
    mutating func add(_ changes: [(Key, UInt64?)], to names: [Key: UInt64]) {
        for (key, new) in changes { histories[key, default: [names[key]]].append(new) }
        steps.append(Step(changes: changes))
    }

    /// Keeps only the steps after those of `earlier`, which led to `names`.
    mutating func begin(with names: [Key: UInt64], after earlier: NameHistory) {
        base = names
        steps = Array(steps.dropFirst(earlier.steps.count))
    }

    /// Marks the steps after those of `earlier` as uncertain.
    mutating func doubtSteps(after earlier: NameHistory) {
        for index in steps.indices.dropFirst(earlier.steps.count) {
            steps[index].isCertain = false
        }
    }

    /// Entries of the directory that changed since it was synced.
    func changedKeys(in directory: UInt64) -> [Key] {
        histories.keys.filter { $0.directory == directory }
    }

    /// Makes entries durable, and on a disk with a journal all steps before their last one.
    mutating func sync(_ keys: Set<Key>) {
        for key in keys { histories[key] = nil }
        guard
            let last = steps.lastIndex(where: { step in
                step.isCertain && step.changes.contains { keys.contains($0.0) }
            })
        else { return }
        for step in steps[...last] { for (key, new) in step.changes { base[key] = new } }
        steps.removeFirst(last + 1)
    }

    // MARK: Judging

    /// Returns a problem where the names that were found are not those after one of the steps.
    func problemWithSteps(_ found: [Key: UInt64], path: (Key) -> String) -> String? {
        var wrong = Set(base.keys).union(found.keys).filter { base[$0] != found[$0] }
        if wrong.isEmpty { return nil }
        var fewest = wrong
        var now = base
        for step in steps {
            for (key, new) in step.changes {
                now[key] = new
                if now[key] == found[key] { wrong.remove(key) } else { wrong.insert(key) }
            }
            if wrong.isEmpty { return nil }
            if wrong.count <= fewest.count { fewest = wrong }
        }
        return "names are as they never were: "
            + fewest.map { key in
                let name = path(key)
                return "\(name) is \(found[key].map { "\($0)" } ?? "not there")"
            }.sorted().joined(separator: ", ")
    }

    /// Returns a problem where an entry has a value that it never had since its directory was
    /// synced. `names`: those that programs see.
    func problemWithEntries(
        _ found: [Key: UInt64], names: [Key: UInt64], path: (Key) -> String
    ) -> String? {
        for key in Set(names.keys).union(found.keys).union(histories.keys).sorted(by: {
            ($0.directory, $0.name) < ($1.directory, $1.name)
        }) {
            let allowed = histories[key] ?? [names[key]]
            if allowed.contains(found[key]) { continue }
            // Entries of a directory that is gone are gone too.
            let isGone = key.directory != CrashModel.root && !found.values.contains(key.directory)
            if isGone, found[key] == nil { continue }
            return
                "\(path(key)) is \(found[key].map { "\($0)" } ?? "not there"), and was \(allowed)"
        }
        return nil
    }
}
