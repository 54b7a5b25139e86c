import Glibc

// The effect of flushes: which changes become durable.
extension DiskImage {
    mutating func syncAll() {
        durable = inodes
        for identity in lost.keys {
            let content = contentOnDisk(identity)
            durable[identity]?.content = content
        }
        pending = []
        events = [:]
        committed = lastChange
    }

    mutating func sync(_ identity: UInt64, dataOnly: Bool) {
        guard let inode = inodes[identity] else { return }
        switch kind.order {
        case .journal:
            commit(upTo: dataOnly ? inode.latest.data : inode.latest.any)
        case .posix:
            if inode.mode & S_IFMT == S_IFDIR {
                commitEntries(of: identity)
            }
            if !dataOnly {
                commit { pending in pending.identity == identity }
            }
        }
        let content = contentOnDisk(identity)
        durable[identity]?.content = content
        durable[identity]?.latest.layout = inode.latest.layout
        events[identity] = nil
    }

    /// Drops writes as a failed sync does on Linux: the blocks that `dropped` names are not written
    /// and count as clean. Bit n of `dropped` stands for block n and every 64th after it.
    mutating func dropUnwritten(_ identity: UInt64, _ dropped: UInt64) {
        // A freed inode has no pages in memory.
        guard inodes[identity] != nil, let underWay = events[identity] else { return }
        func isDropped(_ event: Event) -> Bool {
            guard case .write(let block, _, _) = event else { return false }
            return dropped >> (block % 64) & 1 == 1
        }
        for event in underWay where isDropped(event) {
            guard case .write(let index, _, _) = event,
                index < inodes[identity]!.content.blocks.count,
                let now = inodes[identity]!.content.blocks[index], lost[identity]?[index] == nil
            else { continue }
            let known = durable[identity]!.content.blocks
            let old = index < known.count ? known[index] : nil
            lost[identity, default: [:]][index] = LostBlock(
                onDisk: old?.generation == now.generation ? old : nil)
            drops[identity, default: 0] += 1
        }
        events[identity]!.removeAll(where: isDropped)
    }

    /// The content that a successful sync makes durable.
    private func contentOnDisk(_ identity: UInt64) -> Content {
        guard var content = inodes[identity]?.content else { return Content() }
        for (index, block) in lost[identity] ?? [:] where index < content.blocks.count {
            content.blocks[index] = block.onDisk
        }
        return content
    }

    /// Drops the cached pages of a file: programs now see the disk's content.
    mutating func forgetCached(_ identity: UInt64) {
        guard let known = lost[identity] else { return }
        var content = contentOnDisk(identity)
        let onDisk = content.blocks
        // The page cache has zeros behind the end of the file, even where the block on the disk has
        // others. The next write to the block writes these zeros too.
        DiskImage.clip(&content)
        inodes[identity]!.content = content
        lost[identity] = known.filter { index, _ in
            index < content.blocks.count && content.blocks[index]?.bytes != onDisk[index]?.bytes
        }
    }

    /// Whether programs see content of the file that is not on the disk and will not be written.
    func hasLost(_ identity: UInt64) -> Bool { lost[identity]?.isEmpty == false }

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

    /// Commits all changes of the directory's entries, and earlier changes that those depend on.
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
