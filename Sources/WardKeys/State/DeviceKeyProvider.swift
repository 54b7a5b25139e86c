import WardCrypto
import WardFormat
import WardSystem

/// The device's own key, behind an operation: it entangles secrets and never gives the key out.
///
/// The embedded default is a file. A TPM or a secure element could stand behind the same call, and
/// limit the rate there.
protocol DeviceKeyProvider: Sendable {
    /// HMAC-SHA-256 under the device key of `purpose` ‖ 00 ‖ `secret`, 32 bytes.
    ///
    /// Throws `KeybagError.Code.noDeviceKey` where this device has no key for the volume.
    func entangle(
        _ secret: borrowing SecretBytes, purpose: String
    ) throws(KeybagError) -> SecretBytes
}

/// The device key as a file: 32 random bytes in the state directory, read for each use and then
/// wiped.
struct FileDeviceKeyProvider: DeviceKeyProvider {
    let path: String
    let volumeUUID: [UInt8]
    let storage: any KeyStorage

    /// Makes a device key for a new volume; an existing key stays.
    func create() throws(KeybagError) {
        do throws(Errno) {
            _ = try storage.read(path, limit: KeyFile.maximumBytes)
            return
        } catch {
            guard error == .noSuchFileOrDirectory else {
                throw .system(error, path, "can't read the device key")
            }
        }
        do throws(Errno) {
            let key = try SecretBytes(random: KeyFile.keyBytes)
            let file = try KeyFile.serialized(.device, uuid: volumeUUID, first: key)
            try storage.replaceSecret(path, with: file)
        } catch {
            throw .system(error, path, "can't store the device key")
        }
    }

    func entangle(
        _ secret: borrowing SecretBytes, purpose: String
    ) throws(KeybagError) -> SecretBytes {
        let file: SecretBytes
        do throws(Errno) {
            file = try storage.read(path, limit: KeyFile.maximumBytes)
        } catch {
            if error == .noSuchFileOrDirectory {
                throw KeybagError(
                    .noDeviceKey, path: path,
                    "this device has no device key for the volume; a copied volume needs a recovery kit"
                )
            }
            throw .system(error, path, "can't read the device key")
        }
        do throws(FormatError) {
            _ = try KeyFile.check(file, .device, uuid: volumeUUID)
        } catch {
            throw .format(error, path)
        }
        do {
            let key = try file.slice(KeyFile.keyRange(0))
            let prefix = Array(purpose.utf8) + [0]
            var message = try SecretBytes(zeroed: prefix.count + secret.count)
            message.withUnsafeMutableBytes { out in
                out[..<prefix.count].copyBytes(from: prefix)
                secret.withUnsafeBytes { out[prefix.count...].copyBytes(from: $0) }
            }
            return try HMACSHA256.derive(message, key: key)
        } catch {
            throw .noLockedMemory(path)
        }
    }
}
