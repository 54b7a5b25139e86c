import Glibc

// What a flush makes durable.
extension DiskImage {
    mutating func syncAll() {
        durable = inodes
        pending = []
        events = [:]
        committed = lastChange
    }

    mutating func sync(_ identity: UInt64, dataOnly: Bool) {
        guard let inode = inodes[identity] else { return }
        switch kind.order {
        case .journal:
            commit(upTo: dataOnly ? inode.lastDataChange : inode.lastChange)
        case .posix:
            if inode.mode & S_IFMT == S_IFDIR {
                commitEntries(of: identity)
            }
            if !dataOnly {
                commit { pending in pending.identity == identity }
            }
        }
        durable[identity]?.content = inode.content
        durable[identity]?.lastLayout = inode.lastLayout
        events[identity] = nil
    }

    mutating func commit(upTo number: Int) {
        guard number > committed else { return }
        commit { $0.number <= number }
        committed = number
    }

    mutating func commit(_ isMeant: (Pending) -> Bool) {
        var left: [Pending] = []
        for change in pending {
            if isMeant(change) {
                DiskImage.apply(change, to: &durable)
            } else {
                left.append(change)
            }
        }
        pending = left
    }

    /// All changes of the directory's entries, and earlier ones of what these change elsewhere.
    mutating func commitEntries(of directory: UInt64) {
        var chosen: Set<Int> = []
        var keys: Set<[UInt64]> = []
        var needsMoves = false
        func key(_ change: EntryChange) -> [UInt64] {
            [change.directory] + change.name.map(UInt64.init)
        }
        for change in pending.reversed() {
            guard case .entries(let entries, let movesDirectory) = change.change else { continue }
            let isMeant =
                entries.contains { $0.directory == directory || keys.contains(key($0)) }
                || movesDirectory && needsMoves
            guard isMeant else { continue }
            chosen.insert(change.number)
            for entry in entries { keys.insert(key(entry)) }
            if movesDirectory { needsMoves = true }
        }
        commit { chosen.contains($0.number) }
    }

    static func apply(_ pending: Pending, to inodes: inout [UInt64: Inode]) {
        if case .entries(let changes, _) = pending.change {
            for change in changes { inodes[change.directory]?.entries[change.name] = change.new }
        } else if inodes[pending.identity] != nil {
            apply(pending.change, to: &inodes[pending.identity]!)
        }
    }
}
