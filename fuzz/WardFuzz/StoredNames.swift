import WardFormat
import WardSystem

@testable import WardVolume

/// Names and attributes as they are on disk. They are read as they come, and again sealed with the
/// volume's key.
enum StoredNames {
    private static let keys: VolumeKeys = {
        guard
            let keys = try? VolumeKeys(
                volumeKey: locked([UInt8](repeating: 3, count: 32)), format: .version1)
        else { fatalError("no keys") }
        return keys
    }()
    private static let directoryID = [UInt8](repeating: 5, count: 16)

    static func read(_ bytes: [UInt8]) {
        if let name = bytes.withUnsafeBytes({ keys.names.decrypt($0, in: directoryID) }) {
            fatalError("a name that nobody sealed opens: \(name)")
        }
        require(keys.openAttribute(bytes, directoryID, "user.w.x") == nil, "an attribute opens")
        if (1...255).contains(bytes.count) { readName(bytes) }
        let associatedData = directoryID + Array("user.w.x".utf8)
        let sealed = try? bytes.withUnsafeBytesTyped { plain throws(Errno) in
            try keys.attributes.seal(plain, associatedData: associatedData)
        }
        guard let sealed, let opened = keys.openAttribute(sealed, directoryID, "user.w.x") else {
            return
        }
        require(
            bytes[2...].elementsEqual(opened.name + opened.value), "an attribute's value changes")
    }

    private static func readName(_ name: [UInt8]) {
        let stored = name.withUnsafeBytes {
            keys.names.longNameTarget($0, in: directoryID)
        }
        let opened = Array(stored.utf8).withUnsafeBytes { keys.names.decrypt($0, in: directoryID) }
        require(opened == name, "a name does not open again")
    }
}
