import WardFormat

/// The names of a directory that are ward's own, and no file's (docs/format.md §2).
package enum OwnName {
    /// Whether the name is a directory's record, or that of the directory to which it moves.
    package static func isRecord(_ name: [UInt8]) -> Bool {
        name.elementsEqual(DirectoryRecord.linkName.utf8)
            || name.elementsEqual(DirectoryRecord.nextLinkName.utf8)
    }

    /// Whether the name belongs to another name: half of a long name, or a link's permit.
    package static func isCompanion(_ name: [UInt8]) -> Bool {
        name.count == LinkPermit.nameBytes
            && (name.starts(with: ".n".utf8) || isPermit(name))
    }

    /// Whether the name is that of a link's permit.
    package static func isPermit(_ name: [UInt8]) -> Bool {
        name.count == LinkPermit.nameBytes && name.starts(with: LinkPermit.namePrefix.utf8)
    }
}
