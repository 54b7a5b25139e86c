internal import WardSystem

extension FileManager {
    /// Makes a file with `data`, in place of what is there; with `.protectionKey` it has that class
    /// from the first byte on.
    ///
    /// False, and nothing made, where it can't be: also where the class can't be honoured now, or
    /// is none, or the directory is not on a ward volume (`DataProtection.policy`).
    /// `Data.write(to:options:)` tells why.
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

    /// Makes a directory; with `.protectionKey` what is created in it takes that class (rows I1,
    /// I3), and so do the directories made on the way. A directory that is there already stays as
    /// it is.
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
        // From the top: what is created in one of them finds its class set.
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
            // Who may not write to a directory may not set its class either.
            if !others.isEmpty {
                try self.FoundationEssentials::setAttributes(others, ofItemAtPath: directory)
            }
        }
    }

    /// As `createDirectory(atPath:withIntermediateDirectories:attributes:)`.
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
