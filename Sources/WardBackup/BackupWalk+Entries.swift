import CWardLinux
import Glibc
import WardFormat
import WardSystem
import WardVolume

// The facts about each entry: its type, its mark, its stamp.
extension BackupWalk {
    /// Entries that one thread examines in one job.
    private static let chunk = 256

    /// Fills in the facts that need system calls for each entry: the type where the directory does
    /// not say it, the mark, the stamp.
    func examine(
        _ listings: ParallelSlots<Listing>, _ threads: Int, _ stamps: Bool, _ problems: ProblemList
    ) {
        struct Piece {
            var listing: Listing
            var range: Range<Int>
        }
        var pieces: [Piece] = []
        for index in 0..<listings.count {
            guard let listing = listings[index] else { continue }
            var start = 0
            while start < listing.entries.count {
                let end = min(start + BackupWalk.chunk, listing.entries.count)
                pieces.append(Piece(listing: listing, range: start..<end))
                start = end
            }
        }
        let constant = pieces
        Parallel.forEach(pieces.count, threads: threads, name: "ward-backup") { index in
            let piece = constant[index]
            for at in piece.range {
                guard var entry = piece.listing.entries[at] else { continue }
                let stays = self.examine(&entry, piece.listing, stamps, problems)
                piece.listing.entries[at] = stays ? entry : nil
            }
        }
    }

    /// False where the entry is gone.
    private func examine(
        _ entry: inout BackupEntry, _ listing: Listing, _ stamps: Bool, _ problems: ProblemList
    ) -> Bool {
        entry.exclusion = exclusion(of: entry.name, in: listing)
        if entry.kind == .unknown || (stamps && entry.exclusion == nil) {
            do throws(Errno) {
                let status = try NodeName(bytes: entry.name).withCString { name throws(Errno) in
                    try Syscall.fstatat(listing.descriptor, name)
                }
                entry.kind = BackupEntry.Kind(mode: status.st_mode)
                if stamps { entry.stamp = BackupStamp(status) }
            } catch {
                return error != .noSuchFileOrDirectory
            }
        }
        guard entry.exclusion == nil, entry.kind == .file || entry.kind == .directory else {
            return true
        }
        if hasMark(entry, listing) {
            if isMarked(entry, listing) {
                entry.exclusion = .marked
            } else {
                problems.add(
                    listing.place.path.appending(component: entry.name), nil,
                    "its mark that backups leave it out does not authenticate: it is left in")
            }
        }
        return true
    }

    private func exclusion(
        of name: [UInt8], in listing: Listing
    ) -> BackupEntry.Exclusion? {
        if name.starts(with: ".ward-".utf8) { return .unfinished }
        if listing.role == .root, name.starts(with: "ward.".utf8),
            name.reversed().starts(with: ".new".utf8.reversed())
        {
            return .unfinished
        }
        if listing.role == .purged, !name.elementsEqual(DirectoryRecord.linkName.utf8) {
            return .cache
        }
        return nil
    }

    private func hasMark(_ entry: BackupEntry, _ listing: Listing) -> Bool {
        withProcPath(entry.name, listing.descriptor) { ward_lgetxattr($0, markName, nil, 0) >= 0 }
    }

    private func withProcPath<R>(
        _ name: [UInt8], _ directory: Int32, _ body: (UnsafePointer<CChar>) -> R
    ) -> R {
        var path = Array("/proc/self/fd/\(directory)/".utf8)
        path += name
        path.append(0)
        return path.withUnsafeBufferPointer { bytes in
            bytes.withMemoryRebound(to: CChar.self) { body($0.baseAddress!) }
        }
    }

    /// Whether the mark authenticates: it belongs to this volume and to this file.
    private func isMarked(_ entry: BackupEntry, _ listing: Listing) -> Bool {
        // A program may be changing the file just now: the check is repeated.
        for attempt in 0..<5 {
            if attempt > 0 { usleep(1000) }
            guard let owner = ownerID(entry, listing) else { continue }
            var value = [UInt8](repeating: 0, count: 1 << 16)
            let count = withProcPath(entry.name, listing.descriptor) {
                ward_lgetxattr($0, markName, &value, value.count)
            }
            guard count > 0 else { return false }
            if let opened = keys.openAttribute(Array(value[0..<count]), owner, markName),
                opened.name.elementsEqual(BackupWalk.exclusionAttribute.utf8)
            {
                return true
            }
        }
        return false
    }

    private func ownerID(_ entry: BackupEntry, _ listing: Listing) -> [UInt8]? {
        let flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK
        let opened = try? NodeName(bytes: entry.name).withCString { name throws(Errno) in
            try Syscall.openat(
                listing.descriptor, name, entry.kind == .directory ? flags | O_DIRECTORY : flags)
        }
        guard let opened else { return nil }
        let file = OwnedDescriptor(adopting: opened)
        if entry.kind == .directory {
            let parent = listing.place.path.isEmpty ? keys.rootID : listing.record?.directoryID
            return parent.flatMap { try? readRecord(file.rawValue, in: $0) }?.directoryID
        }
        var bytes = [UInt8](repeating: 0, count: FileHeader.bytes)
        guard
            let count = try? Syscall.pread(file.rawValue, &bytes, bytes.count, at: 0),
            count == FileHeader.bytes
        else { return nil }
        return bytes.withUnsafeBytes {
            try? keys.header(reading: $0.baseAddress!)
        }?.fileID
    }
}
