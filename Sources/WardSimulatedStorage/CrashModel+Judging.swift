import WardFormat

// Contents, classes and damage that may be found after a power cut.
extension CrashModel {
    /// Returns a problem where a file can't have the content that was found.
    func problem(withContent found: [UInt8], of identity: UInt64, layout: PageLayout) -> String? {
        let node = nodes[identity]!
        let versions = node.versions
        if versions.last! == found || versions.contains(found) { return nil }
        let smallest = versions.map(\.count).min()!
        guard found.count >= smallest else {
            return "\(found.count) bytes, and never fewer than \(smallest)"
        }
        let pages = layout.pageCount(forSize: found.count)
        for page in 0..<pages {
            let start = layout.start(ofPage: page)
            let length = min(layout.capacity(ofPage: page), found.count - start)
            let isKnown = versions.contains { version in
                let known = max(0, min(layout.capacity(ofPage: page), version.count - start))
                if page == pages - 1, known != length {
                    guard known > length, node.formerSizes.contains(found.count),
                        version[found.count..<(start + known)].allSatisfy({ $0 == 0 })
                    else { return false }
                }
                // A page that was written while the file was shorter, or that was never written,
                // ends in zeros.
                let same = min(known, length)
                return found.withUnsafeBufferPointer { found in
                    version.withUnsafeBufferPointer { version in
                        for index in 0..<same
                        where found[start + index] != version[start + index] {
                            return false
                        }
                        for index in same..<max(same, length) where found[start + index] != 0 {
                            return false
                        }
                        return true
                    }
                }
            }
            guard isKnown else {
                let bytes = found[start..<(start + length)]
                let what = bytes.allSatisfy { $0 == 0 } ? "zeros" : "nothing that was written"
                return "page \(page) of \(pages) (\(length) bytes) is \(what); sizes were "
                    + "\(versions.map(\.count)), found \(found.count)"
            }
        }
        return nil
    }

    /// Whether a file or directory may have this class. Without a journal, a new file's name may
    /// survive while the class that a failed call gave to its directory does not.
    func mayBe(
        _ found: ProtectionClass, _ identity: UInt64, in directory: UInt64, order: DiskKind.Order
    ) -> Bool {
        if nodes[identity]!.classes.contains(found) { return true }
        guard order == .posix, let above = nodes[directory]?.classes else { return false }
        return nodes[identity]!.kind == .file && above.count > 1 && above.contains(found)
    }

    /// Whether this is a directory that a disk without a journal may have damaged. Its removal
    /// changes the record and the name in two directories.
    func mayBeDamaged(_ identity: UInt64, order: DiskKind.Order) -> Bool {
        order == .posix && identity != CrashModel.root && keys(of: identity).isEmpty
    }
}
