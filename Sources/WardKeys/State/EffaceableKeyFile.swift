import WardFormat
import WardSystem

/// The effaceable key on disk: one key, or {old, new} during a change of the passcode.
struct EffaceableKeyFile {
    let path: String
    let uuid: [UInt8]
    let storage: any KeyStorage

    /// Key number `index`; nil where the file holds fewer keys. Throws `erased` where the file is
    /// gone or wiped.
    func key(_ index: Int) throws(KeybagError) -> SecretBytes? {
        let file: SecretBytes
        do throws(Errno) {
            file = try storage.read(path, limit: KeyFile.maximumBytes)
        } catch {
            if error == .noSuchFileOrDirectory { throw erased }
            throw .system(error, path, "can't read the effaceable key")
        }
        // A power cut in the middle of an erase leaves zeros.
        if file.withUnsafeBytes({ $0.allSatisfy { $0 == 0 } }) { throw erased }
        do throws(FormatError) {
            guard index < (try KeyFile.check(file, .effaceable, uuid: uuid)) else { return nil }
        } catch {
            throw .format(error, path)
        }
        do throws(Errno) {
            return try file.slice(KeyFile.keyRange(index))
        } catch {
            throw .noLockedMemory(path)
        }
    }

    private var erased: KeybagError {
        KeybagError(.erased, path: path, "the volume was erased: its effaceable key is gone")
    }

    /// Replaces the file durably by one with `key` alone, and wipes the old file.
    func store(_ key: borrowing SecretBytes) throws(KeybagError) {
        do throws(Errno) {
            try storage.replaceSecret(
                path, with: try KeyFile.serialized(.effaceable, uuid: uuid, first: key))
        } catch {
            throw .system(error, path, "can't store the effaceable key")
        }
    }

    /// Replaces the file durably by one with {`old`, `new`}, and wipes the old file.
    func store(old: borrowing SecretBytes, new: borrowing SecretBytes) throws(KeybagError) {
        do throws(Errno) {
            let second: SecretBytes? = try new.copy()
            try storage.replaceSecret(
                path,
                with: try KeyFile.serialized(.effaceable, uuid: uuid, first: old, second: second))
        } catch {
            throw .system(error, path, "can't store the effaceable key")
        }
    }

    /// Wipes the remains of a replacement that a power cut stopped.
    func wipeLeftover() throws(Errno) { try storage.destroySecret(path + ".new") }

    /// Erases the volume: no key derived from this one can be made again. The leftover is wiped
    /// first, because after the key is gone, no file tells of a second copy.
    func destroy() throws(KeybagError) {
        do throws(Errno) {
            try wipeLeftover()
            try storage.destroySecret(path)
        } catch {
            throw .system(error, path, "can't destroy the effaceable key")
        }
    }
}
