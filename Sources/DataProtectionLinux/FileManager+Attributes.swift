internal import WardSystem

extension FileManager {
    /// Foundation's attributes, with `.protectionKey`: the class of a file, or the class that a
    /// directory gives to new files, as `FileProtectionType`.
    ///
    /// The key is absent off a ward volume. The call works in every state of the volume (row I9).
    /// As on iOS, the class is not among the extended attributes, which Foundation lists on Linux.
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
            // The right to see size and times does not include the right to read the class.
            if error == .permissionDenied { return attributes }
            throw FileFailure.error(error, path, .reading)
        }
        return attributes
    }

    /// Sets attributes as Foundation does. The class of `.protectionKey` changes a file's class
    /// without rewriting its content (row I7), and the class of new files in a directory (row I4).
    ///
    /// Attributes that were read before can be set again. `.protectionKey` alone decides the class;
    /// the extended attributes of ward among them are ignored.
    ///
    /// - Throws: `CocoaError` 513 where the change needs a key that is not available now (row I8),
    ///   and 512 for an unknown class. In both cases nothing changes.
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

/// Changes the class of existing items.
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
            // Setting the class that the item already has needs no key, as on iOS. An owner without
            // the right to read the file can't see its class; then the class is set.
            if (try? VolumeAttributes.protection(ofItemAt: path)) == protection { return }
            try VolumeAttributes.setProtection(protection, ofItemAt: path)
        } catch {
            throw FileFailure.error(error, path, .writing, asking: protection)
        }
    }
}
