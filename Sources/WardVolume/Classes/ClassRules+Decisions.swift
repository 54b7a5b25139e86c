import WardFormat

// The decisions of the class rules: values in, values out. No function here reads a file, takes a
// mutex or waits. The rows are those of docs/semantics.md.
extension ClassRules {
    /// Returns the class that new files take from a directory with the class `own` (row I1). In a
    /// marked tree it is at most C. `isInMarked` is asked only where it matters.
    static func inherited(
        _ own: ProtectionClass, isInMarked: @autoclosure () -> Bool
    ) -> ProtectionClass {
        own.isForSynchronised || !isInMarked() ? own : .completeUntilFirstUserAuthentication
    }

    /// Returns the class of a side file that is made beside an open database (row I12). Nil where
    /// the side file takes the `inherited` class of its directory, as any new file does.
    ///
    /// `mayWeaken`: the database is one for sure, and its owner makes the side file.
    static func sideFileClass(
        _ kind: SideFile, beside database: ProtectionClass, inherited: ProtectionClass,
        mayWeaken: Bool
    ) -> ProtectionClass? {
        let own = kind.protectionClass(beside: database)
        return !mayWeaken && inherited.isStronger(than: own) ? nil : own
    }

    /// Whether a file key may be wrapped for a class now (rows I2, I8, O3). The public key of class
    /// B is always there.
    static func admitsNewKey(
        of protectionClass: ProtectionClass, in state: ClassGate.State
    ) -> Bool {
        state == .open || protectionClass == .completeUnlessOpen
    }

    /// Whether a caller may change a class. Only the owner may weaken it, as with chmod(2). A
    /// program that may write a file gets no right to make it readable while locked.
    static func mayChange(
        from old: ProtectionClass, to wanted: ProtectionClass, isOwner: Bool
    ) -> Bool {
        isOwner || old == wanted || wanted.isStronger(than: old)
    }

    /// Returns the stronger class that is lost where a file of class `now` takes its final name
    /// (row I6); nil where none is. `refused`: the class that the file was refused. `replaced`: the
    /// class of the file that had the name.
    static func lostClass(
        refused: ProtectionClass?, replaced: ProtectionClass?, now: ProtectionClass
    ) -> ProtectionClass? {
        guard let wanted = refused ?? replaced, wanted.isStronger(than: now) else { return nil }
        return wanted
    }
}
