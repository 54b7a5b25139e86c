import CWardLinux
import Glibc
import WardFormat
import WardSystem

// Directories that are marked as synchronised (docs/sync.md). A synchronising tool reads through
// the mount and takes content out of the protection. So nothing in such a directory, at any depth,
// gets a class above C.
//
// A mark is a flag in the directory's record. The volume looks for it from below, parent by parent,
// and only where a class above C is about to be given. Nodes below hold no copy of it. So a rename
// or a new mark has nothing to update, and a directory of class C or D costs nothing. While the
// volume has no mark, no request climbs.
extension Volume {
    /// The operation by which a file got, or was to get, into a marked directory.
    enum Arrival: String {
        case create, setClass, link, rename
    }

    /// The answer of `user.ward.synced`; throws `ENODATA` outside of marked directories.
    func synchronisation(of node: Node) throws(Errno) -> Synchronisation {
        if node.isDirectory, try backing.directoryState(of: node).isMarked { return .marked }
        let isInside =
            node.isDirectory
            ? rules.markedDirectory(over: node) != nil
            : node.isRegular && rules.markedDirectory(overAnyNameOf: node) != nil
        guard isInside else { throw .noData }
        return .inherited
    }

    /// Sets a directory's mark or removes it. Throws `ENODATA` if there is none to remove, `EPERM`
    /// for a caller that is neither owner nor root. A directory of class A, B or CX gets class C
    /// with its mark, and keeps it when the mark goes. The change is durable when this returns.
    func setMark(
        of node: Node, to isMarked: Bool, _ caller: Caller, _ context: WorkerContext
    ) throws(Errno) {
        guard try isOwner(caller, of: node) else { throw .notPermitted }
        guard node.isDirectory else { throw .notDirectory }
        let state = try backing.directoryState(of: node)
        try names.withRecordFixed(of: state) { () throws(Errno) in
            if !isMarked, !state.isMarked { throw .noData }
            // A mark must not lead to a seal of a class that nothing vouches for.
            if state.isClassRefused {
                report(
                    .integrityFailure(
                        path: path(of: node),
                        reason: "nothing vouches for its class, so it gets no mark. To set the "
                            + "class: ward class set CLASS DIRECTORY"))
                throw .ioError
            }
            let own = state.protectionClass
            try writeRecord(
                of: node, state, ClassRules.inherited(own, isInMarked: isMarked),
                isMarked: isMarked, isChosen: state.judgement.value == .right, context)
        }
        if isMarked { gate.contexts.awaitClassDecisions() }
    }

    // MARK: Giving classes

    /// Throws `EINVAL` for a class above C under a name in a synchronised tree. For such a class it
    /// begins a decision, which the caller ends by `endClassDecision`.
    func mayDecide(
        _ protectionClass: ProtectionClass, _ parent: Node, _ name: UnsafeRawBufferPointer,
        _ operation: Arrival, _ caller: Caller, _ context: WorkerContext
    ) throws(Errno) {
        if protectionClass.isForSynchronised { return }
        context.beginClassDecision()
        guard let marked = rules.markedDirectory(over: parent) else { return }
        throw refused(
            names.path(of: String(decoding: name, as: UTF8.self), in: parent),
            protectionClass, marked, operation, caller)
    }

    func refused(
        _ path: String, _ protectionClass: ProtectionClass, _ marked: Node, _ operation: Arrival,
        _ caller: Caller
    ) -> Errno {
        report(
            .refusedInSynchronised(
                path: path, protectionClass: protectionClass, marked: self.path(of: marked),
                operation: operation.rawValue, caller: caller))
        return .invalidArgument
    }
}
