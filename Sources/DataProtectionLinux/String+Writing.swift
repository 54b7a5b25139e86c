extension StringProtocol {
    /// Writes as Foundation does; the file has the class of its directory. If the volume's lock is
    /// the reason of a failure, the error tells it (`DataProtectionError.locked`).
    public func write(to url: URL, atomically: Bool, encoding: String.Encoding) throws {
        do {
            try self.FoundationEssentials::write(
                to: url, atomically: atomically, encoding: encoding)
        } catch {
            throw FileFailure.explained(error, url.path, replacing: atomically)
        }
    }

    /// The same as `write(to:atomically:encoding:)`.
    public func write(
        toFile path: some StringProtocol, atomically: Bool, encoding: String.Encoding
    ) throws {
        do {
            try self.FoundationEssentials::write(
                toFile: path, atomically: atomically, encoding: encoding)
        } catch {
            throw FileFailure.explained(error, String(path), replacing: atomically)
        }
    }
}
