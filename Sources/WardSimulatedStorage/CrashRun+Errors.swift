import Glibc
import WardFormat
import WardSystem
import WardVolume

// Errors of the backing store: the program gets them, the state is the old or the new one, and the
// run goes on.
extension CrashRun {
    /// Runs one operation. Sometimes one call that it makes to the backing store fails.
    func operateOnDisk(_ disk: SimulatedDisk) throws {
        guard settings.injectsErrors, !isLocked, random.chance(1, in: 3) else {
            try operate()
            noteLost()
            return
        }
        let fault = nextFault(&random)
        let before = model
        let imageBefore = disk.image
        var thrown: (any Error)?
        disk.fail(fault)
        do {
            try operate()
        } catch {
            thrown = error
        }
        let wasReached = disk.hasFailed
        disk.fail(nil)
        guard wasReached else {
            if let thrown { throw thrown }
            noteLost()
            return
        }
        report.failures += 1
        label += ", \(fault.error) at call \(fault.after)"
        if let thrown, thrown as? Errno != fault.error {
            lose("\(label): the program got \(thrown)")
        }
        if reportsTwice() { lose("\(label): a failed sync was reported twice") }
        let image = volume.disk.image
        let possible = thrown == nil ? model.settled : model.between(before)
        // Pages may be lost since before the operation. Or the operation lost them: its sync
        // failed, and it opened the file again, which reads the state on the disk.
        comeToTerms(
            with: possible.orUnsynced(model) {
                image.hasLost($0) || imageBefore.hasLost($0)
                    || image.drops[$0] != imageBefore.drops[$0]
            },
            after: before)
        noteLost()
    }

    /// Notes files whose pages a failed sync dropped: a later sync does not make those pages
    /// durable. The first open of such a file, by any call, reads the state on the disk (decision
    /// 0054). The file `opened` was opened just now and may still differ from the disk behind its
    /// end.
    func noteLost(opened: UInt64? = nil) {
        let image = volume.disk.image
        for identity in model.nodes.keys.sorted() {
            let wasLost = model.nodes[identity]!.hasLostPages
            let isLost = image.hasLost(identity)
            model.nodes[identity]!.hasLostPages = isLost
            guard wasLost, !isLost || identity == opened, isReachable(identity) else { continue }
            do {
                try volume.disk.withoutFaults { try adoptFromDisk(identity) }
            } catch {
                lose("\(label): \(model.path(of: identity)) after a failed sync: \(error)")
            }
        }
    }

    private func isReachable(_ identity: UInt64) -> Bool {
        !model.keys(of: identity).isEmpty || kernel.handles.contains { $0.identity == identity }
    }

    /// Takes content, class and attributes from the disk. Each must be a value that the file had
    /// since its last sync.
    private func adoptFromDisk(_ identity: UInt64) throws {
        func refuse(_ what: String) {
            lose("\(label): \(model.path(of: identity)), opened anew after a failed sync: \(what)")
        }
        if isOpenClass(identity) {
            let opened = kernel.handles.first { $0.identity == identity }?.handle
            let handle = try opened ?? volume.open(try node(identity))
            defer { if opened == nil { volume.release(handle) } }
            let content = try volume.read(handle)
            if content != model.nodes[identity]!.content {
                if let problem = model.problem(withContent: content, of: identity, layout: layout) {
                    refuse(problem)
                }
                model.write(identity, content)
            }
        }
        let node = try node(identity)
        let found = try volume.classOf(node)
        let known = model.nodes[identity]!.classes
        if found != known.last! {
            if !known.contains(found) { refuse("class \(found), and was \(known)") }
            model.nodes[identity]!.classes.append(found)
        }
        for (name, history) in model.nodes[identity]!.attributes {
            let value = try volume.attribute(node, name)
            if value == history.last! { continue }
            if !history.contains(value) { refuse("attribute \(name) is \(value ?? [])") }
            model.nodes[identity]!.attributes[name]!.append(value)
        }
    }

    func nextFault(_ random: inout SplitMix) -> SimulatedDisk.Faults {
        SimulatedDisk.Faults(
            after: random.below(random.pick([3, 12, 40])),
            random.pick([Errno.ioError, .noSpace, Errno(rawValue: EDQUOT)]),
            writesHalf: random.chance(1, in: 2), hitsLooks: random.chance(1, in: 2),
            droppedBlocks: random.next())
    }

    /// Whether a handle reports a failed sync more than once. The first report comes at the next
    /// flush.
    private func reportsTwice() -> Bool {
        kernel.handles.contains { _, handle in
            do {
                try volume.volume.flush(handle, volume.context)
            } catch {}
            do {
                try volume.volume.flush(handle, volume.context)
                return false
            } catch {
                return true
            }
        }
    }

    /// Compares the whole volume with `possible` and takes over the state that was found.
    private func comeToTerms(with possible: CrashModel, after before: CrashModel) {
        let events = volume.events.problems.filter { !$0.hasPrefix("lost:") }
        if !events.isEmpty { lose("\(label): \(events.joined(separator: "; "))") }
        volume.events.clear()
        var judge = CrashJudge(possible, order: .journal, layout: layout)
        judge.judge(volume)
        if !judge.problems.isEmpty {
            lose("\(label): \(judge.problems.joined(separator: "; "))")
        }
        model.adopt(judge.found, after: before)
    }
}
