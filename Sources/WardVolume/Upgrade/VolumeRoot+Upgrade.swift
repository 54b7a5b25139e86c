import Glibc
import WardFormat
import WardSystem

extension VolumeRoot {
    /// Marks a volume of format 1 as one that is being upgraded. From the first write on, a program
    /// that knows format 1 alone refuses the volume.
    static func beginUpgrade(
        _ path: String, volumeKey: borrowing SecretBytes, storage: any Storage
    ) throws(VolumeOpenError) {
        let descriptor = try call(path, "can't be opened") { () throws(Errno) in
            try storage.openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY, mode: 0)
        }
        defer { storage.close(descriptor) }
        let before = standing(descriptor, storage)
        guard before == FormatStanding(.version1) else { return }
        let keys = try derive(volumeKey, before, path)
        let record = try readRecord(descriptor, path, keys, storage)
        var state = try readState(descriptor, path, keys, storage)
        state.format = .version2
        state.isUpgrading = true
        let new = try derive(volumeKey, .upgrading, path)
        try call(path, "the upgrade can't begin") { () throws(Errno) in
            // The state record first: it alone says that structures of format 1 are left. After a
            // power cut in between, the next opening for writing puts the root's record in place.
            try writeState(state, descriptor, new, storage)
            try putRecord(record, descriptor, new, storage)
        }
    }
}

extension Volume {
    /// The format that is written, and whether the volume is being upgraded to it.
    public var standing: FormatStanding {
        keys.readsVersion1 ? .upgrading : FormatStanding(keys.format)
    }

    /// Begins the upgrade of a volume of format 1 that is not open, durably. Does nothing where it
    /// has begun, or has ended. `VolumeUpgrade` then carries over what is in the volume.
    ///
    /// The caller holds the volume's lock (`VolumeHold`).
    public static func beginUpgrade(
        backingPath: String, volumeKey: borrowing SecretBytes,
        storage: any Storage = PosixStorage()
    ) throws(VolumeOpenError) {
        try VolumeRoot.beginUpgrade(backingPath, volumeKey: volumeKey, storage: storage)
    }

    /// Says in the state record that no structure of format 1 is left, durably. From then on they
    /// are damaged. Throws `EBUSY` while a backup holds the state record, and `EIO` where not all
    /// is durable.
    package func endUpgrade() throws(Errno) {
        if durability.dirt.isEpochHeld { throw .resourceBusy }
        durability.dirt.noteChange()
        try durability.advance(closing: false, endsUpgrade: true) { before in
            awaitWrites(before: before, closing: false)
        }
        if keys.readsVersion1 { throw .ioError }
    }
}
