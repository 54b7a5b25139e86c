extension StringProtocol {
    /// As Foundation's; the file has its directory's class. What is refused because the volume is
    /// locked says so (`DataProtectionError.locked`).
    public func write(to url: URL, atomically: Bool, encoding: String.Encoding) throws {
        do {
            try self.FoundationEssentials::write(
                to: url, atomically: atomically, encoding: encoding)
        } catch {
            throw FileFailure.explained(error, url.path, replacing: atomically)
        }
    }

    /// As `write(to:atomically:encoding:)`.
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
