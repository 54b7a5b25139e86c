extension Data {
    /// Writes the data to a file, with the protection class that the options ask for from the first
    /// byte on.
    ///
    /// As Foundation's `write(to:options:)`. With a class: throws 513 and creates nothing where the
    /// class can't be honoured now (`DataProtectionError.locked`), `featureUnsupported` off a ward
    /// volume (see `DataProtection.policy`). Without one the file has its directory's.
    public func write(to url: URL, options: Data.WritingOptions = []) throws {
        guard url.isFileURL else {
            return try writeByFoundation(to: url, options: options)
        }
        try withUnsafeBytes { bytes in
            try Data.write(bytes, to: url.path, options) { plain in
                try writeByFoundation(to: url, options: plain)
            }
        }
    }

    /// A method of its own: in a closure within a closure Swift 6.3.1 loses the module selector,
    /// and calls this module's.
    private func writeByFoundation(to url: URL, options: Data.WritingOptions) throws {
        try self.FoundationEssentials::write(to: url, options: options)
    }

    /// `plain` writes without a class.
    static func write(
        _ bytes: UnsafeRawBufferPointer, to path: String, _ options: Data.WritingOptions,
        plain: (Data.WritingOptions) throws -> Void
    ) throws {
        let wanted: FileProtectionType?
        do throws(DataProtectionError) {
            wanted = try options.protection
        } catch {
            throw FileFailure.error(error, path)
        }
        if let wanted,
            try DataProtection.applies(
                wanted, at: ProtectedWriting.directory(of: path, options), path: path)
        {
            return try ProtectedWriting.write(bytes, to: path, wanted, options)
        }
        do {
            try plain(options.withoutProtection)
        } catch {
            throw FileFailure.explained(
                error, path, replacing: options.contains(.atomic))
        }
    }
}

extension NSData {
    /// As `Data.write(to:options:)`.
    public func write(to url: URL, options: NSData.WritingOptions = []) throws {
        guard url.isFileURL else {
            return try self.Foundation::write(to: url, options: options)
        }
        try write(toFile: url.path, options: options)
    }

    /// As `Data.write(to:options:)`.
    public func write(toFile path: String, options: NSData.WritingOptions = []) throws {
        try Data.write(
            UnsafeRawBufferPointer(start: bytes, count: length), to: path, options
        ) { plain in
            try writeByFoundation(toFile: path, options: plain)
        }
    }

    private func writeByFoundation(toFile path: String, options: NSData.WritingOptions) throws {
        try self.Foundation::write(toFile: path, options: options)
    }
}
