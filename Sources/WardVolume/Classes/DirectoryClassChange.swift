import WardFormat

/// A change of a directory's record, its class or its mark, as a value that says what the change
/// has to do (row I4).
struct DirectoryClassChange: Equatable {
    let old: ProtectionClass
    let wanted: ProtectionClass
    let wasMarked: Bool
    let isMarked: Bool
    /// A program chose the class. Else it follows from a mark.
    var isChosen = true
    /// The present class counts as it is. Else a program that sets it again gives it a seal.
    var hasSeal = true
    /// The record is durable when the call returns.
    let isSynced: Bool

    /// Whether empty files without a header must get one first, to keep their class.
    var changesClass: Bool { old != wanted }

    /// Whether the record is written. After a failed or pending sync the present record may be in
    /// memory alone.
    func isNeeded(isRecordUnsynced: Bool, syncFailures: UInt64, areClassesDue: Bool) -> Bool {
        let isNew = changesClass || wasMarked != isMarked || isChosen && !hasSeal
        return isNew || isRecordUnsynced || syncFailures != 0 || isSynced && areClassesDue
    }

    /// Whether the headers of the directory's files are synced before the record is written. A
    /// power cut that takes a file's header leaves an empty file with its directory's class.
    func needsSyncedHeaders(hasFiles: Bool, syncFailures: UInt64, areHeadersDue: Bool) -> Bool {
        changesClass && hasFiles && (syncFailures != 0 || areHeadersDue)
    }
}
