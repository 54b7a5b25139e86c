import CWardLinux
import Glibc

// Changes by programs, and the notes about them until they are durable.
extension DiskImage {
    mutating func now() -> timespec {
        clock += 1
        return timespec(tv_sec: clock, tv_nsec: 0)
    }

    /// Makes an inode and returns its identity. Hidden inodes, for the backing store's own names,
    /// have a separate range of identities, so that tests can predict the identity of the next
    /// file.
    mutating func makeInode(
        _ mode: mode_t, target: [UInt8] = [], device: dev_t = 0, isHidden: Bool = false
    ) -> UInt64 {
        let identity = isHidden ? nextHiddenIdentity : nextIdentity
        if isHidden { nextHiddenIdentity += 1 } else { nextIdentity += 1 }
        // ext4 gives a freed number to the next file. Without a journal an old name may come back
        // after a cut, and two files would share the number.
        let number: UInt64
        if kind.order == .journal, let free = freeNumbers.popLast() {
            number = free
        } else {
            number = nextNumber
            nextNumber += 1
        }
        var inode = Inode(
            identity: identity, number: number, mode: mode, device: device, target: target)
        let time = now()
        inode.times = Times(access: time, modification: time, change: time)
        inodes[identity] = inode
        durable[identity] = inode
        touch(identity, data: true)
        return identity
    }

    /// Takes the next change number and notes it with the inode.
    @discardableResult
    mutating func touch(_ identity: UInt64, data: Bool) -> Int {
        lastChange += 1
        inodes[identity]?.latest.any = lastChange
        if data { inodes[identity]?.latest.data = lastChange }
        return lastChange
    }

    /// Changes names and link counts in one step.
    mutating func change(_ changes: [EntryChange], movesDirectory: Bool = false) {
        lastChange += 1
        let time = now()
        for change in changes {
            let old = inodes[change.directory]!.entries[change.name]
            inodes[change.directory]!.entries[change.name] = change.new
            inodes[change.directory]!.latest.any = lastChange
            inodes[change.directory]!.latest.data = lastChange
            inodes[change.directory]!.times.modification = time
            if let old { link(old, -1, time) }
            if let new = change.new {
                link(new, 1, time)
                if inodes[new]!.mode & S_IFMT == S_IFDIR { inodes[new]!.parent = change.directory }
            }
        }
        pending.append(
            Pending(
                number: lastChange, identity: 0,
                change: .entries(changes, movesDirectory: movesDirectory)))
    }

    mutating func link(_ identity: UInt64, _ count: Int, _ time: timespec) {
        inodes[identity]!.links += count
        inodes[identity]!.times.change = time
        inodes[identity]!.latest.any = lastChange
    }

    mutating func change(_ identity: UInt64, _ change: Change) {
        DiskImage.apply(change, to: &inodes[identity]!)
        inodes[identity]!.times.change = now()
        touch(identity, data: false)
        pending.append(Pending(number: lastChange, identity: identity, change: change))
    }

    static func apply(_ change: Change, to inode: inout Inode) {
        switch change {
        case .entries: break
        case .mode(let mode): inode.mode = inode.mode & S_IFMT | mode
        case .owner(let uid, let gid):
            if uid != uid_t.max { inode.uid = uid }
            if gid != gid_t.max { inode.gid = gid }
        case .times(let access, let modification):
            inode.times.access = access
            inode.times.modification = modification
        case .attribute(let name, let value): inode.attributes[name] = value
        }
    }

    /// Frees an inode that has neither a name nor a descriptor.
    mutating func free(_ identity: UInt64) {
        guard let inode = inodes.removeValue(forKey: identity) else { return }
        freeNumbers.append(inode.number)
        lost[identity] = nil
    }

    mutating func write(_ identity: UInt64, _ source: UnsafeRawBufferPointer, at offset: Int) {
        guard source.count > 0 else { return }
        let time = now()
        inodes[identity]!.times.modification = time
        inodes[identity]!.times.change = time
        let afterLayout = inodes[identity]!.latest.layout
        let end = offset + source.count
        var written: [Event] = []
        let last = (end - 1) / DiskImage.blockBytes
        var blocks = inodes[identity]!.content.blocks
        inodes[identity]!.content.blocks = []
        while blocks.count <= last { blocks.append(nil) }
        for index in (offset / DiskImage.blockBytes)...last {
            let start = index * DiskImage.blockBytes
            let from = max(offset, start) - start
            let until = min(end, start + DiskImage.blockBytes) - start
            if blocks[index] == nil {
                blocks[index] = Block(
                    bytes: [UInt8](repeating: 0, count: DiskImage.blockBytes),
                    generation: nextGeneration, afterChange: lastChange, afterLayout: afterLayout)
                nextGeneration += 1
            }
            blocks[index]!.bytes.withUnsafeMutableBytes { bytes in
                UnsafeMutableRawBufferPointer(rebasing: bytes[from..<until]).copyMemory(
                    from: UnsafeRawBufferPointer(
                        rebasing: source[(start + from - offset)..<(start + until - offset)]))
            }
            // The kernel writes a cached page whole, so a dropped page is written in all sectors.
            let wasLost = lost[identity]?.removeValue(forKey: index) != nil
            written.append(
                .write(
                    block: index, version: blocks[index]!,
                    sectors: wasLost ? 0xFF : DiskImage.sectors(from, until)))
        }
        inodes[identity]!.content.blocks = blocks
        let size = inodes[identity]!.content.size
        if end > size {
            inodes[identity]!.content.size = end
            written.append(
                .grow(from: size, to: end, afterChange: lastChange, afterLayout: afterLayout))
        }
        events[identity, default: []] += written
    }

    static func sectors(_ from: Int, _ until: Int) -> UInt8 {
        var mask: UInt8 = 0
        for sector in (from / sectorBytes)...((until - 1) / sectorBytes) { mask |= 1 << sector }
        return mask
    }

    mutating func change(_ identity: UInt64, _ layout: Layout) {
        let time = now()
        inodes[identity]!.times.modification = time
        inodes[identity]!.times.change = time
        // The rest of a block that stays in part is zeroed in the page cache. Those zeros may reach
        // the disk before the layout change.
        let before = inodes[identity]!.content.blocks
        DiskImage.apply(layout, to: &inodes[identity]!.content)
        let after = inodes[identity]!.content.blocks
        let range: Range<Int>
        switch layout {
        case .truncate(let size): range = size..<(size + 1)
        case .punch(let offset, let count): range = offset..<(offset + max(count, 1))
        case .nothing: range = 0..<0
        }
        if !range.isEmpty {
            let last = (range.upperBound - 1) / DiskImage.blockBytes
            for index in Set([range.lowerBound / DiskImage.blockBytes, last]).sorted()
            where index < after.count && index < before.count {
                guard let old = before[index], let new = after[index], old.bytes != new.bytes
                else { continue }
                var mask: UInt8 = 0
                for sector in 0..<8 {
                    let part = (sector * 512)..<(sector * 512 + 512)
                    if old.bytes[part] != new.bytes[part] { mask |= 1 << sector }
                }
                if lost[identity]?.removeValue(forKey: index) != nil { mask = 0xFF }
                events[identity, default: []].append(
                    .write(block: index, version: new, sectors: mask))
            }
        }
        for index in (lost[identity] ?? [:]).keys
        where index >= after.count || after[index] == nil {
            lost[identity]![index] = nil
        }
        let number = touch(identity, data: true)
        inodes[identity]!.latest.layout = number
        events[identity, default: []].append(.layout(number: number, layout))
    }

    static func apply(_ layout: Layout, to content: inout Content) {
        switch layout {
        case .nothing: break
        case .truncate(let size):
            let kept = (size + blockBytes - 1) / blockBytes
            if content.blocks.count > kept {
                content.blocks.removeLast(content.blocks.count - kept)
            }
            if size < content.size { zero(&content, size..<(kept * blockBytes)) }
            content.size = size
        case .punch(let offset, let count):
            zero(&content, offset..<(offset + count))
        }
    }

    /// Frees whole blocks in the range and zeroes partial ones.
    static func zero(_ content: inout Content, _ range: Range<Int>) {
        guard !range.isEmpty else { return }
        for index in (range.lowerBound / blockBytes)...((range.upperBound - 1) / blockBytes) {
            guard index < content.blocks.count, content.blocks[index] != nil else { continue }
            let start = index * blockBytes
            let from = max(range.lowerBound, start) - start
            let until = min(range.upperBound, start + blockBytes) - start
            if from == 0, until == blockBytes {
                content.blocks[index] = nil
            } else {
                content.blocks[index]!.bytes.withUnsafeMutableBytes { bytes in
                    for at in from..<until { bytes[at] = 0 }
                }
            }
        }
    }
}
