import WardFormat
import WardSystem

// The class of a new file (rows I1, I12). `ClassRules` decides by what is found here.
extension Volume {
    /// Returns the class of a new file, or throws where the file may not be made (rows I1, I12).
    /// Begins a class decision if the class is above C.
    func classOfNewFile(
        _ parent: Node, _ state: DirectoryState, _ name: UnsafeRawBufferPointer,
        _ caller: Caller, _ context: WorkerContext
    ) throws(Errno) -> ProtectionClass {
        let inherited = try classOfNewFiles(in: parent, state, context)
        let protectionClass =
            try sideFileClass(parent, state, name, else: inherited, caller, context) ?? inherited
        try mayDecide(protectionClass, parent, name, .create, caller, context)
        try mayCreate(protectionClass, caller)
        return protectionClass
    }

    /// Returns the class that a new file in `parent` inherits. Begins a decision if the class is
    /// above C.
    ///
    /// In a synchronised tree the class is C where the directory's own is above it. The record is
    /// then lowered, once, so that the next file finds C there.
    func classOfNewFiles(
        in parent: Node, _ state: DirectoryState, _ context: WorkerContext
    ) throws(Errno) -> ProtectionClass {
        let own = state.protectionClass
        if own.isForSynchronised { return own }
        context.beginClassDecision()
        guard rules.markedDirectory(over: parent) != nil else { return own }
        context.endClassDecision()
        return try names.withRecordFixed(of: state) { () throws(Errno) in
            let capped = ClassRules.inherited(state.protectionClass, isInMarked: true)
            // Before the first unlock the mark may be another person's, and class C is closed.
            if seals.areUsed, !seals.areOpen { return capped }
            if state.protectionClass != capped {
                try writeRecord(
                    of: parent, state, capped, isMarked: state.isMarked, isChosen: false, context)
            }
            return state.protectionClass
        }
    }
}
