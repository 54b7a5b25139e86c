internal import WardSystem

extension FileManager {
    /// Makes a file with `data`, in place of an existing one. With `.protectionKey` the file has
    /// that class from its first byte on.
    ///
    /// Returns false where the file can't be made, and makes nothing. Reasons are also a class that
    /// can't be honoured now or is unknown, and a directory off a ward volume
    /// (`DataProtection.policy`). To get the reason, call `Data.write(to:options:)`, which throws
    /// it.
    @discardableResult
    public func createFile(
        atPath path: String, contents data: Data?, attributes: [FileAttributeKey: Any]? = nil
    ) -> Bool {
        var others = attributes ?? [:]
        let directory = Paths.directory(of: path)
        let wanted: FileProtectionType?
        do throws(DataProtectionError) {
            wanted = try others.takeProtection()
        } catch {
            return false
        }
        guard let protection = wanted else {
            return self.FoundationEssentials::createFile(
                atPath: path, contents: data, attributes: others.isEmpty ? nil : others)
        }
        do {
            guard
                try DataProtection.applies(protection, at: directory, path: path)
            else {
                return self.FoundationEssentials::createFile(
                    atPath: path, contents: data, attributes: others.isEmpty ? nil : others)
            }
            let mode = (others.removeValue(forKey: .posixPermissions) as? NSNumber)
            try (data ?? Data()).withUnsafeBytes {
                try ProtectedWriting.write(
                    $0, to: path, protection, .atomic, mode: mode.map { mode_t($0.uint32Value) })
            }
            if !others.isEmpty {
                try self.FoundationEssentials::setAttributes(others, ofItemAtPath: path)
            }
            return true
        } catch {
            return false
        }
    }

    /// Makes a directory. With `.protectionKey`, new items in it get that class (rows I1, I3), and
    /// so do the intermediate directories that the call makes. An existing directory does not
    /// change.
    public func createDirectory(
        atPath path: String, withIntermediateDirectories createIntermediates: Bool,
        attributes: [FileAttributeKey: Any]? = nil
    ) throws {
        var others = attributes ?? [:]
        let protection: FileProtectionType?
        do throws(DataProtectionError) {
            protection = try others.takeProtection()
        } catch {
            throw FileFailure.error(error, path)
        }
        guard let protection else {
            return try self.FoundationEssentials::createDirectory(
                atPath: path, withIntermediateDirectories: createIntermediates,
                attributes: others.isEmpty ? nil : others)
        }
        let missing = Paths.missing(path)
        let anchor = missing.first.map(Paths.directory(of:)) ?? path
        guard try DataProtection.applies(protection, at: anchor, path: path),
            !missing.isEmpty
        else {
            return try self.FoundationEssentials::createDirectory(
                atPath: path, withIntermediateDirectories: createIntermediates,
                attributes: others.isEmpty ? nil : others)
        }
        // From the top, so that the class of a directory is set before an item is made in it.
        for (index, directory) in (createIntermediates ? missing : [path]).enumerated() {
            let existed = access(directory, F_OK) == 0
            try self.FoundationEssentials::createDirectory(
                atPath: directory, withIntermediateDirectories: createIntermediates && index > 0,
                attributes: nil)
            if existed { continue }
            do throws(Errno) {
                try VolumeAttributes.setProtection(protection, ofItemAt: directory)
            } catch {
                rmdir(directory)
                throw FileFailure.error(error, directory, .writing)
            }
            // After the class: setting a class may need the right to write (row I10).
            if !others.isEmpty {
                try self.FoundationEssentials::setAttributes(others, ofItemAtPath: directory)
            }
        }
    }

    /// The same as `createDirectory(atPath:withIntermediateDirectories:attributes:)`.
    public func createDirectory(
        at url: URL, withIntermediateDirectories createIntermediates: Bool,
        attributes: [FileAttributeKey: Any]? = nil
    ) throws {
        guard url.isFileURL else {
            return try self.FoundationEssentials::createDirectory(
                at: url, withIntermediateDirectories: createIntermediates, attributes: attributes)
        }
        try createDirectory(
            atPath: url.path, withIntermediateDirectories: createIntermediates,
            attributes: attributes)
    }
}
