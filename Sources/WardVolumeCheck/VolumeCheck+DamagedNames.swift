import Glibc
import WardFormat
import WardSystem
import WardVolume

// Finds what a changed stored name was before.
extension VolumeCheck {
    /// Whether a name that ward never makes is a damaged name of ward's. It opens with one
    /// character corrected, or the file behind it belongs to the volume. A name with a dot counts
    /// only in the first case: other programs' unfinished or conflicting copies of backing files
    /// have one.
    func isDamagedName(
        _ entry: DirectoryEntry, _ directory: Int32, _ parent: Node, _ state: DirectoryState
    ) throws(Errno) -> Bool {
        if try corrected(entry.name, directory, state.id) != nil { return true }
        guard !entry.name.contains(UInt8(ascii: ".")) else { return false }
        let stored = entry.name.zeroTerminated
        do throws(Errno) {
            let status = try volume.storage.fstatat(directory, stored)
            guard status.st_dev == volume.store.device else { return false }
            let type = status.st_mode & S_IFMT
            // Any program's directory may lie here: its record shows whether it is the volume's.
            return type == S_IFDIR
                ? try hasSoundRecord(directory, stored, in: state)
                : try isOurs(type, stored, parent, directory)
        } catch .permissionDenied {
            // ward could open a file of its own.
            return false
        }
    }

    private func hasSoundRecord(
        _ directory: Int32, _ stored: [CChar], in parent: DirectoryState
    ) throws(Errno) -> Bool {
        let descriptor = try volume.storage.openat(
            directory, stored, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, mode: 0)
        defer { volume.storage.close(descriptor) }
        guard case .sound = try recordOnDisk(descriptor, parentID: parent.id) else { return false }
        return true
    }

    /// Names for which all characters are tried: many more could take hours.
    private static let mostCorrections = 1000

    /// Returns what a name was before one character of it was changed, zero-terminated. Nil where
    /// that name is taken.
    func corrected(
        _ stored: [UInt8], _ directory: Int32, _ parent: Node
    ) throws(Errno) -> [CChar]? {
        let state = try volume.backing.directoryState(of: parent)
        var found: [UInt8]?
        if stored.count == 44, stored[0] == NameCipher.longNamePrefix {
            let halves = tally.withLock { $0.longNames.halves.filter { $0.parent === parent } }
            for half in halves {
                let name = half.stored.dropLast().map { UInt8(bitPattern: $0) }
                guard zip(name, stored).count(where: { $0 != $1 }) == 1 else { continue }
                if try opensLong(name, directory, state.id) { found = name }
            }
        } else {
            found = try corrected(stored, directory, state.id)
        }
        guard let name = found.map(\.zeroTerminated) else { return nil }
        return exists(name, in: parent) ? nil : name
    }

    /// Tries all characters in the place of one that names can't have, or else in every place.
    private func corrected(
        _ stored: [UInt8], _ directory: Int32, _ id: [UInt8]
    ) throws(Errno) -> [UInt8]? {
        let longest = Base64URL.encodedCount(16 + NameCipher.longestShortName)
        guard stored.count >= Base64URL.encodedCount(17), stored.count <= longest else {
            return nil
        }
        let strange = stored.indices.filter { !Base64URL.isCharacter(stored[$0]) }
        guard strange.count < 2 else { return nil }
        if strange.isEmpty {
            let isAllowed = tally.withLock { tally in
                tally.corrections += 1
                return tally.corrections <= VolumeCheck.mostCorrections
            }
            guard isAllowed else { return nil }
        }
        var name = stored
        if stored.count == 44, strange.isEmpty || strange == [0] {
            name[0] = NameCipher.longNamePrefix
            if try opensLong(name, directory, id) { return name }
            name[0] = stored[0]
        }
        for index in strange.isEmpty ? Array(stored.indices) : strange {
            for character in Base64URL.alphabet where character != stored[index] {
                name[index] = character
                if volume.opens(name, in: id) { return name }
            }
            name[index] = stored[index]
        }
        return nil
    }
}
