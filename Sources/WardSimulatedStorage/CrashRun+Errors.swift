import Glibc
import WardFormat
import WardSystem
import WardVolume

// Errors of the store: the program gets them, what is there is old or new, and everything goes on.
extension CrashRun {
    /// One operation; sometimes one call that it makes to the store fails.
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
        // Or it was lost until a call forgot what memory had, and failed behind that.
        comeToTerms(
            with: possible.orUnsynced(model) { image.hasLost($0) || imageBefore.hasLost($0) },
            after: before)
        noteLost()
    }

    /// What a failed sync has dropped: the next one does not make it durable, and nobody promised
    /// that it would. Whoever opens such a file first, and be it for another call, finds it as the
    /// disk has it (decision 0054): `opened` was opened just now, and may differ from the disk
    /// behind its end still.
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
        !model.keys(of: identity).isEmpty || handles.contains { $0.identity == identity }
    }

    /// Content, class and attributes as they are found; each has to be one that was there since it
    /// was synced.
    private func adoptFromDisk(_ identity: UInt64) throws {
        func refuse(_ what: String) {
            lose("\(label): \(model.path(of: identity)), opened anew after a failed sync: \(what)")
        }
        if isOpenClass(identity) {
            let opened = handles.first { $0.identity == identity }?.handle
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

    /// Each handle tells of a failed sync once, at the next occasion.
    private func reportsTwice() -> Bool {
        handles.contains { _, handle in
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

    /// Looks at everything; goes on from what was found.
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
