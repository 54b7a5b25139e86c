extension Data {
    /// Writes the data to a file that has the requested protection class from its first byte on.
    ///
    /// Without a class, the file gets the class of its directory, and the call is Foundation's
    /// `write(to:options:)`.
    ///
    /// - Throws: `CocoaError` 513 if the class can't be honoured now
    ///   (`DataProtectionError.locked`), and `featureUnsupported` off a ward volume (see
    ///   `DataProtection.policy`). In both cases no file is created.
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

    /// This must be a method. In a closure within a closure, Swift 6.3.1 loses the module selector
    /// and calls this module's method.
    private func writeByFoundation(to url: URL, options: Data.WritingOptions) throws {
        try self.FoundationEssentials::write(to: url, options: options)
    }

    /// Writes `bytes`; `plain` writes them where no class applies.
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
    /// The same as `Data.write(to:options:)`.
    public func write(to url: URL, options: NSData.WritingOptions = []) throws {
        guard url.isFileURL else {
            return try self.Foundation::write(to: url, options: options)
        }
        try write(toFile: url.path, options: options)
    }

    /// The same as `Data.write(to:options:)`.
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
