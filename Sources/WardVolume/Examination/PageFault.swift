/// Consecutive pages of an open file that differ from the format for the same reason.
package struct PageFault: Sendable {
    /// How much of the pages is left.
    package enum State: Sendable {
        /// The page does not authenticate: nothing in it can be read.
        case lost
        /// The page authenticates, or is zero, and does not belong in this place.
        case wrong
        /// The same, but an unclean end excuses it.
        case excused
    }

    /// The numbers of the pages.
    package private(set) var pages: Range<Int>
    /// How much of the pages is left.
    package let state: State
    /// The fault, in words.
    package let reason: String
    /// The bytes of the file that are gone.
    package private(set) var bytes: Range<Int>

    /// The reason of a page that is zero and no hole.
    static let wiped = "wiped"

    init(_ pages: Range<Int>, _ state: State, _ reason: String, bytes: Range<Int>) {
        self.pages = pages
        self.state = state
        self.reason = reason
        self.bytes = bytes
    }

    var isWiped: Bool { reason == PageFault.wiped }

    /// Adds a fault to the last one if it continues that: a file that is damaged from end to end is
    /// one fault.
    static func add(_ next: PageFault, to found: inout [PageFault]) {
        guard let last = found.last, last.pages.upperBound == next.pages.lowerBound,
            last.state == next.state, last.reason == next.reason,
            last.bytes.upperBound == next.bytes.lowerBound
        else { return found.append(next) }
        found[found.count - 1].pages = last.pages.lowerBound..<next.pages.upperBound
        found[found.count - 1].bytes = last.bytes.lowerBound..<next.bytes.upperBound
    }
}
