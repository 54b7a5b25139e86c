import Glibc

// Power cuts.
extension DiskImage {
    /// Returns the disk after a power cut. The same seed gives the same disk.
    package func afterPowerCut(_ survival: Survival, seed: UInt64) -> DiskImage {
        var random = SplitMix(seed: seed)
        // The chance in percent that a unit, a file or a name survives.
        let odds = [10, 50, 90][random.below(3)]
        let nameOdds = [10, 50, 90][random.below(3)]
        let prefix = survivingPrefix(survival, &random)
        var then = durable
        switch kind.order {
        case .journal:
            for change in pending where change.number <= prefix {
                DiskImage.apply(change, to: &then)
            }
        case .posix: applyPending(survival, odds: nameOdds, to: &then, &random)
        }
        for identity in events.keys.sorted() {
            guard let inode = then[identity] else { continue }
            let filePrefix =
                switch kind.order {
                case .journal: prefix
                case .posix: max(layoutPrefix(survival, &random), inode.latest.layout)
                }
            replay(
                survival, odds: odds, events[identity]!, onto: &then[identity]!.content,
                prefix: filePrefix, &random)
        }
        return rebuilt(then)
    }

    /// The last change that the journal committed before the cut.
    private func survivingPrefix(_ survival: Survival, _ random: inout SplitMix) -> Int {
        switch survival {
        case .everything, .namesWithoutData: return lastChange
        case .onlyFlushed, .dataWithoutNames: return committed
        case .wholeFiles, .units:
            let prefix = committed + random.below(lastChange - committed + 1)
            return random.chance(1, in: 4) ? lastChange : prefix
        }
    }

    /// The last change of one file's blocks or size that reached a disk without a journal.
    private func layoutPrefix(_ survival: Survival, _ random: inout SplitMix) -> Int {
        switch survival {
        case .everything, .namesWithoutData: lastChange
        case .onlyFlushed, .dataWithoutNames: -1
        case .wholeFiles, .units:
            random.chance(1, in: 3) ? lastChange : random.below(lastChange + 1)
        }
    }

    /// Applies the changes of names and attributes that reach a disk without a journal.
    private func applyPending(
        _ survival: Survival, odds: Int, to inodes: inout [UInt64: Inode],
        _ random: inout SplitMix
    ) {
        var movesAreLost = false
        var inodesLost: Set<UInt64> = []
        for change in pending {
            let survives: Bool
            switch survival {
            case .everything, .namesWithoutData: survives = true
            case .onlyFlushed, .dataWithoutNames: survives = false
            case .wholeFiles, .units: survives = random.chance(odds, in: 100)
            }
            if case .entries = change.change {
            } else {
                // Changes of one inode's attributes reach the disk in order.
                if !survives { inodesLost.insert(change.identity) }
                if inodesLost.contains(change.identity) { continue }
            }
            if case .entries(_, movesDirectory: true) = change.change {
                if !survives { movesAreLost = true }
                if movesAreLost { continue }
            }
            if survives { DiskImage.apply(change, to: &inodes) }
        }
    }

    /// Applies the changes of one file's content that survive.
    private func replay(
        _ survival: Survival, odds: Int, _ events: [Event], onto content: inout Content,
        prefix: Int, _ random: inout SplitMix
    ) {
        let fileSurvives: Bool? =
            switch survival {
            case .everything, .dataWithoutNames: true
            case .onlyFlushed, .namesWithoutData: false
            case .wholeFiles: random.chance(odds, in: 100)
            case .units: nil
            }
        let sizesSurvive = survival == .namesWithoutData ? true : fileSurvives
        replay(
            events, onto: &content, prefix: prefix,
            isAllocated: { version, prefix in
                kind.order == .journal
                    ? version.afterChange <= prefix : version.afterLayout <= prefix
            },
            survives: { fileSurvives ?? $0.chance(odds, in: 100) },
            sizeSurvives: { sizesSurvive ?? $0.chance(odds, in: 100) }, &random)
    }

    func replay(
        _ events: [Event], onto content: inout Content, prefix: Int,
        isAllocated: ((afterChange: Int, afterLayout: Int), Int) -> Bool,
        survives: (inout SplitMix) -> Bool, sizeSurvives: (inout SplitMix) -> Bool,
        _ random: inout SplitMix
    ) {
        for event in events {
            switch event {
            case .layout(let number, let layout):
                // A layout change that the journal committed always applies.
                if number <= max(prefix, kind.order == .journal ? committed : 0) {
                    DiskImage.apply(layout, to: &content)
                }
            case .grow(let from, let to, let afterChange, let afterLayout):
                guard isAllocated((afterChange, afterLayout), prefix), sizeSurvives(&random)
                else { continue }
                // Blocks are allocated from the front, or all at once.
                var size = to
                if random.chance(1, in: 4) {
                    let pages = (to - from) / DiskImage.blockBytes + 1
                    size = min(to, (from / DiskImage.blockBytes + random.below(pages + 1)) * 4096)
                }
                content.size = max(content.size, size)
            case .write(let index, let version, let sectors):
                while content.blocks.count <= index { content.blocks.append(nil) }
                if let there = content.blocks[index] {
                    guard there.generation == version.generation else { continue }
                } else {
                    guard isAllocated((version.afterChange, version.afterLayout), prefix)
                    else { continue }
                }
                write(version, sectors, to: &content.blocks[index], survives, &random)
            }
        }
        DiskImage.clip(&content)
    }

    func write(
        _ version: Block, _ sectors: UInt8, to block: inout Block?,
        _ survives: (inout SplitMix) -> Bool, _ random: inout SplitMix
    ) {
        if kind.atomicBytes == 4096 {
            if survives(&random) { block = version }
            return
        }
        for sector in 0..<8 where sectors & (1 << sector) != 0 {
            guard survives(&random) else { continue }
            if block == nil {
                block = version
                block!.bytes = [UInt8](repeating: 0, count: DiskImage.blockBytes)
            }
            let part = (sector * 512)..<(sector * 512 + 512)
            block!.bytes.replaceSubrange(part, with: version.bytes[part])
        }
    }

    /// Frees and zeroes everything behind the end.
    static func clip(_ content: inout Content) {
        let kept = (content.size + blockBytes - 1) / blockBytes
        if content.blocks.count > kept { content.blocks.removeLast(content.blocks.count - kept) }
        if content.size % blockBytes != 0 { zero(&content, content.size..<(kept * blockBytes)) }
    }

    /// A disk on which the reachable ones of these inodes are durable.
    func rebuilt(_ found: [UInt64: Inode]) -> DiskImage {
        var image = DiskImage(kind: kind)
        image.inodes = [:]
        var waiting = [DiskImage.rootIdentity]
        while let identity = waiting.popLast() {
            var directory = image.inodes[identity] ?? found[identity]!
            directory.links = 2
            for name in directory.entries.keys.sorted(by: { $0.lexicographicallyPrecedes($1) }) {
                let child = directory.entries[name]!
                guard var inode = image.inodes[child] ?? found[child] else {
                    directory.entries[name] = nil
                    continue
                }
                if image.inodes[child] == nil { inode.links = 0 }
                inode.links += 1
                let isDirectory = inode.mode & S_IFMT == S_IFDIR
                if isDirectory { inode.parent = identity }
                if image.inodes[child] == nil, isDirectory { waiting.append(child) }
                image.inodes[child] = inode
            }
            image.inodes[identity] = directory
        }
        image.nextIdentity = nextIdentity
        image.nextHiddenIdentity = nextHiddenIdentity
        image.nextGeneration = nextGeneration
        image.nextNumber = nextNumber
        image.clock = clock
        image.lastChange = lastChange
        let used = Set(image.inodes.values.map(\.number))
        image.freeNumbers = (12..<nextNumber).filter { !used.contains($0) }.reversed()
        image.syncAll()
        return image
    }
}
