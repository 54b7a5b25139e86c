import WardFormat

/// The names of a directory that are ward's own, and no file's (docs/format.md §2).
package struct OwnName: Sendable {
    /// Whether the names of format 2 count.
    private let bindsPlaces: Bool

    package init(_ format: VolumeFormat) { bindsPlaces = format >= .version2 }

    /// Whether the name is a directory's record, or that of the directory to which it moves.
    package func isRecord(_ name: [UInt8]) -> Bool {
        name.elementsEqual(DirectoryRecord.linkName.utf8) || isSecondRecord(name)
    }

    /// Whether the name is that of the record for the directory to which this one moves.
    package func isSecondRecord(_ name: [UInt8]) -> Bool {
        bindsPlaces && name.elementsEqual(DirectoryRecord.nextLinkName.utf8)
    }

    /// Whether the name belongs to another name: half of a long name, or a link's permit.
    package func isCompanion(_ name: [UInt8]) -> Bool {
        name.count == LinkPermit.nameBytes && name.starts(with: ".n".utf8) || isPermit(name)
    }

    /// Whether the name is that of a link's permit.
    package func isPermit(_ name: [UInt8]) -> Bool {
        bindsPlaces && name.count == LinkPermit.nameBytes
            && name.starts(with: LinkPermit.namePrefix.utf8)
    }
}
