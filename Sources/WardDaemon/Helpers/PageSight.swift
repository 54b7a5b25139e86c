import WardSystem

/// The helper's view of the probe's two pages: of the first by its mapping, of the second by
/// read(2) from its descriptor.
struct PageSight: Equatable, Sendable {
    /// One try to read a page.
    enum Outcome: Equatable, Sendable {
        /// The page's content came.
        case content
        /// Other bytes came.
        case otherBytes
        case refused(Errno)
    }

    var mapped: Outcome
    var read: Outcome
}

extension PageSight {
    /// Bytes of a sight from the helper.
    static let byteCount = 2

    /// A byte for each outcome: 0 for the content, 255 for other bytes, else the error's number.
    var bytes: [UInt8] {
        [mapped, read].map {
            switch $0 {
            case .content: 0
            case .otherBytes: 255
            case .refused(let error): UInt8(clamping: error.rawValue)
            }
        }
    }

    init?(bytes: [UInt8]) {
        guard bytes.count == PageSight.byteCount else { return nil }
        let outcomes = bytes.map { byte -> Outcome in
            switch byte {
            case 0: .content
            case 255: .otherBytes
            default: .refused(Errno(rawValue: Int32(byte)))
            }
        }
        self.init(mapped: outcomes[0], read: outcomes[1])
    }
}

extension PageSight.Outcome {
    var isRefusal: Bool {
        if case .refused = self { true } else { false }
    }
}
