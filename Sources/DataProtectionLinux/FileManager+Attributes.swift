internal import WardSystem

extension FileManager {
    /// As Foundation's, with `.protectionKey`: the class of a file, or the one that a directory
    /// gives, as `FileProtectionType`. Absent off a ward volume. Works in every state of the volume
    /// (row I9). The class stands there alone, as on iOS, not among the extended attributes that
    /// Foundation lists on Linux.
    public func attributesOfItem(atPath path: String) throws -> [FileAttributeKey: Any] {
        var attributes = try self.FoundationEssentials::attributesOfItem(atPath: path)
        // A link has no class; getxattr(2) would follow it.
        guard attributes[.type] as? FileAttributeType != .typeSymbolicLink else {
            return attributes
        }
        attributes.dropVolumeAttributes()
        do throws(Errno) {
            if let protection = try VolumeAttributes.protection(ofItemAt: path) {
                attributes[.protectionKey] = protection._bridgeToObjectiveC()
            }
        } catch {
            // Who may not read a file may see its size and times, and not its class.
            if error == .permissionDenied { return attributes }
            throw FileFailure.error(error, path, .reading)
        }
        return attributes
    }

    /// As Foundation's. `.protectionKey` changes a file's class without rewriting its content (row
    /// I7), and a directory's for what is created in it afterwards (row I4). Throws 513 where a key
    /// that this needs is not there now (row I8), and changes nothing then; 512 for what is no
    /// class. Attributes that were read, changed and are set again give the class of
    /// `.protectionKey`, whatever was listed with them when they were read.
    public func setAttributes(
        _ attributes: [FileAttributeKey: Any], ofItemAtPath path: String
    ) throws {
        var others = attributes
        let protection: FileProtectionType?
        do throws(DataProtectionError) {
            protection = try others.takeProtection()
        } catch {
            throw FileFailure.error(error, path)
        }
        if let protection { try ProtectionChange.set(protection, ofItemAt: path) }
        if !others.isEmpty || protection == nil {
            try self.FoundationEssentials::setAttributes(others, ofItemAtPath: path)
        }
    }
}

/// A class for what is there already.
enum ProtectionChange {
    /// Follows symbolic links, as setxattr(2) does. Throws `CocoaError`.
    static func set(_ protection: FileProtectionType, ofItemAt path: String) throws {
        guard access(path, F_OK) == 0 else {
            throw FileFailure.error(Errno(rawValue: errno), path, .writing)
        }
        guard
            try DataProtection.applies(protection, at: path, path: path)
        else { return }
        do throws(Errno) {
            // A class that the item has already needs no key, as on iOS. The class of a file that
            // its owner may not read is known to nobody.
            if (try? VolumeAttributes.protection(ofItemAt: path)) == protection { return }
            try VolumeAttributes.setProtection(protection, ofItemAt: path)
        } catch {
            throw FileFailure.error(error, path, .writing, asking: protection)
        }
    }
}
