import WardFormat
import WardSystem

// Targets of symbolic links, as a format seals them.
extension MetadataCipher {
    /// `Volume.longestShortTarget` of this cipher's format.
    var longestShortTarget: Int { 4095 * 3 / 4 - overheadBytes }

    /// `Volume.longLinkBytes` of this cipher's format.
    var longLinkBytes: Int { 1 + (LongTarget.plainBytes + overheadBytes) * 4 / 3 }

    /// Returns the content of a stored link; nil if it does not authenticate. `origin`: the ID of
    /// the directory that it was made in; empty in format 1.
    borrowing func content(ofLink stored: [UInt8], origin: [UInt8]) -> LinkContent? {
        guard stored.first == LongTarget.mark else {
            return Base64URL.decode(String(decoding: stored, as: UTF8.self))
                .flatMap { target($0, associatedData: origin) }.map(LinkContent.short)
        }
        guard stored.count == longLinkBytes,
            let sealed = Base64URL.decode(String(decoding: stored.dropFirst(), as: UTF8.self)),
            let plain = target(sealed, associatedData: LongTarget.associatedData + origin)
        else { return nil }
        return LongTarget(plain: plain, above: longestShortTarget).map(LinkContent.long)
    }

    /// Returns the plaintext of a sealed target; nil if it does not authenticate.
    borrowing func target(_ sealed: [UInt8], associatedData: [UInt8]) -> [UInt8]? {
        guard let target = try? open(sealed, associatedData: associatedData) else { return nil }
        return target.withUnsafeBytes { [UInt8]($0) }
    }
}

extension Version1Remains {
    /// Returns the content of a stored link of format 1, which knows no directory.
    func content(of stored: [UInt8]) -> LinkContent? { links.content(ofLink: stored, origin: []) }
}
