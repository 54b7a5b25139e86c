import Glibc

// Decisions on classes. A request decides between `beginClassDecision` and `endClassDecision`.
// After a mark is set, or a name is moved into a marked tree, that request waits for the decisions
// that began before. Then everything that was decided without the mark is visible, and is reported.
extension WorkerContext {
    /// Begins a decision, before the request looks for a mark. A request that sets a mark then
    /// waits for this one. Either this request sees the mark, or the other sees this decision. Both
    /// store before they load, in one order for all threads.
    func beginClassDecision() {
        let count = classDecisions.load(ordering: .relaxed)
        if count & 1 == 0 {
            classDecisions.wrappingAdd(1, ordering: .sequentiallyConsistent)
        }
    }

    /// Ends the decision: the file has its name and class, or never will. Does nothing if no
    /// decision was begun.
    func endClassDecision() {
        if classDecisions.load(ordering: .relaxed) & 1 == 1 {
            classDecisions.wrappingAdd(1, ordering: .sequentiallyConsistent)
        }
    }
}

extension WorkerContexts {
    /// Waits until each decision that had begun has ended. The caller holds no lock that a decision
    /// waits for; a record lock and shared `longNames` are none.
    func awaitClassDecisions() {
        var begun: [ObjectIdentifier: UInt64] = [:]
        forEach { context in
            let count = context.classDecisions.load(ordering: .sequentiallyConsistent)
            if count & 1 == 1 { begun[ObjectIdentifier(context)] = count }
        }
        var pause: UInt32 = 20
        while !begun.isEmpty {
            usleep(pause)
            pause = min(pause * 2, 5000)
            var waiting: [ObjectIdentifier: UInt64] = [:]
            forEach { context in
                let count = context.classDecisions.load(ordering: .sequentiallyConsistent)
                if begun[ObjectIdentifier(context)] == count {
                    waiting[ObjectIdentifier(context)] = count
                }
            }
            begun = waiting
        }
    }
}
