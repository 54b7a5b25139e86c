import Testing
import WardFormat

@testable import WardVolume

/// The rules of classes as values: each table has the whole of its inputs.
@Suite struct ClassDecisionTests {
    private static let classes = ProtectionClass.allCases
    private static let c = ProtectionClass.completeUntilFirstUserAuthentication

    @Test("a new file takes its directory's class, in a synchronised tree at most C (row I1)")
    func inherited() {
        let table: [(own: ProtectionClass, inMarked: ProtectionClass)] = [
            (.complete, Self.c), (.completeUnlessOpen, Self.c), (Self.c, Self.c), (.none, .none),
            (.completeWhenUserInactive, Self.c),
        ]
        #expect(table.map(\.own) == Self.classes)
        for row in table {
            #expect(ClassRules.inherited(row.own, isInMarked: false) == row.own)
            #expect(ClassRules.inherited(row.own, isInMarked: true) == row.inMarked)
        }
    }

    @Test("no mark is looked for over a directory of class C or D")
    func marksAreLookedForAboveC() {
        for own in Self.classes {
            var looks = 0
            func look() -> Bool {
                looks += 1
                return false
            }
            _ = ClassRules.inherited(own, isInMarked: look())
            #expect(looks == (own == Self.c || own == .none ? 0 : 1))
        }
    }

    @Test("only the owner weakens a class")
    func owner() {
        let rising: [ProtectionClass] = [
            .none, Self.c, .completeWhenUserInactive, .completeUnlessOpen, .complete,
        ]
        for (i, old) in rising.enumerated() {
            for (k, wanted) in rising.enumerated() {
                #expect(ClassRules.mayChange(from: old, to: wanted, isOwner: true))
                #expect(ClassRules.mayChange(from: old, to: wanted, isOwner: false) == (k >= i))
            }
        }
    }

    @Test("a key is wrapped for a class that is open, and for class B always (row I8)")
    func newKeys() {
        let states: [ClassGate.State] = [.open, .closing, .closed, .openFilesOnly]
        for protectionClass in Self.classes {
            for state in states {
                #expect(
                    ClassRules.admitsNewKey(of: protectionClass, in: state)
                        == (state == .open || protectionClass == .completeUnlessOpen))
            }
        }
    }

    @Test("a side file takes its database's class, and X-shm at most C (row I12)")
    func sideFiles() {
        for database in Self.classes {
            let shared: ProtectionClass = database == .none ? .none : Self.c
            for inherited in Self.classes {
                for (kind, own) in [(SideFile.content, database), (.shared, shared)] {
                    func decided(mayWeaken: Bool) -> ProtectionClass? {
                        ClassRules.sideFileClass(
                            kind, beside: database, inherited: inherited, mayWeaken: mayWeaken)
                    }
                    #expect(decided(mayWeaken: true) == own)
                    #expect(
                        decided(mayWeaken: false) == (inherited.isStronger(than: own) ? nil : own))
                }
            }
        }
    }

    @Test("a file that takes its final name in a weaker class is told once (row I6)")
    func lostClass() {
        let table:
            [(
                refused: ProtectionClass?, replaced: ProtectionClass?, now: ProtectionClass,
                lost: ProtectionClass?
            )] = [
                (nil, nil, .none, nil), (nil, .complete, Self.c, .complete),
                (nil, Self.c, .complete, nil), (nil, Self.c, Self.c, nil),
                (.complete, nil, Self.c, .complete), (.complete, Self.c, Self.c, .complete),
                // The class that the file was refused counts, and not that of the replaced file.
                (Self.c, .complete, Self.c, nil),
            ]
        for row in table {
            #expect(
                ClassRules.lostClass(refused: row.refused, replaced: row.replaced, now: row.now)
                    == row.lost)
        }
    }

    @Test("what a change of a file's class does, and when it is synced (row I7)")
    func fileChanges() {
        for old in Self.classes {
            for wanted in Self.classes {
                for bits in 0..<16 {
                    let (isEmpty, isSynced) = (bits & 1 != 0, bits & 2 != 0)
                    let (isDue, mayHaveLost) = (bits & 4 != 0, bits & 8 != 0)
                    let change = FileClassChange(
                        old: old, wanted: wanted, isEmpty: isEmpty, isSynced: isSynced)
                    let step: FileClassChange.Step =
                        old == wanted ? .none : isEmpty ? .keylessHeader : .rewrappedKey
                    #expect(change.step == step)
                    #expect(
                        change.leavesSyncDue == (wanted.isStronger(than: old) && !isSynced))
                    #expect(change.isRefusalTold == (wanted.isStronger(than: old) && !isEmpty))
                    let needsSync = change.needsSync(
                        areOthersDue: isDue, mayHaveLostPages: mayHaveLost)
                    // A stronger class is durable when the call returns.
                    if isSynced, wanted.isStronger(than: old) { #expect(needsSync) }
                    // A weaker class needs no sync, unless the disk may have a third, weaker one.
                    if old.isStronger(than: wanted) { #expect(needsSync == (isSynced && isDue)) }
                    if old == wanted { #expect(needsSync == (mayHaveLost || isSynced && isDue)) }
                    if !isSynced, old != wanted { #expect(!needsSync) }
                }
            }
        }
    }

    @Test("when a directory's record is written, and what is synced before it (row I4)")
    func directoryChanges() {
        func change(
            to wanted: ProtectionClass, marked: Bool = false, isSynced: Bool = true
        ) -> DirectoryClassChange {
            DirectoryClassChange(
                old: .complete, wanted: wanted, wasMarked: false, isMarked: marked,
                isSynced: isSynced)
        }
        func isNeeded(
            _ change: DirectoryClassChange, unsynced: Bool = false, failures: UInt64 = 0,
            due: Bool = false
        ) -> Bool {
            change.isNeeded(
                isRecordUnsynced: unsynced, syncFailures: failures, areClassesDue: due)
        }
        let same = change(to: .complete)
        #expect(!isNeeded(same))
        #expect(isNeeded(change(to: Self.c)))
        #expect(isNeeded(change(to: .complete, marked: true)))
        #expect(isNeeded(same, unsynced: true))
        #expect(isNeeded(same, failures: 1))
        #expect(isNeeded(same, due: true))
        #expect(!isNeeded(change(to: .complete, isSynced: false), due: true))

        func syncsHeaders(
            _ change: DirectoryClassChange, files: Bool, failures: UInt64, due: Bool
        ) -> Bool {
            change.needsSyncedHeaders(
                hasFiles: files, syncFailures: failures, areHeadersDue: due)
        }
        for bits in 0..<8 {
            let (files, failed, due) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0)
            let failures: UInt64 = failed ? 1 : 0
            #expect(
                syncsHeaders(change(to: Self.c), files: files, failures: failures, due: due)
                    == (files && (failed || due)))
            #expect(!syncsHeaders(same, files: files, failures: failures, due: due))
        }
    }

    @Test("files above C are counted, with the strongest class")
    func protectedFiles() {
        var found = ProtectedFiles()
        for protectionClass in [ProtectionClass.none, Self.c] { found.add(protectionClass) }
        #expect(found.count == 0 && found.strongest == nil)
        found.add(.completeWhenUserInactive)
        found.add(.complete)
        found.add(.completeUnlessOpen)
        #expect(found.count == 3 && found.strongest == .complete)
    }
}
