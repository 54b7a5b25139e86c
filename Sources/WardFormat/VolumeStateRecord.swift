import WardCrypto
import WardSystem

/// `ward.state` in the root of a volume: whether its last mount ended cleanly, and the epochs in
/// doubt.
///
/// ```
///   0  magic "WARDSTAT"      8
///   8  version               2   that of the volume's format
///  10  in use                1   0 clean, 1 in use
///  11  upgrading             1   format 2: 1 where structures of format 1 may be left; else 0
///  12  epoch                 4   clean: the last used; in use: the first not known to be durable
///  16  interval count n      4   at most 64
///  20  zeros                 4
///  24  intervals           8·n   first epoch 4 ‖ last epoch 4, ascending
///  ..  MAC                  32   HMAC-SHA-256 of all bytes before it under the state key
/// ```
public struct VolumeStateRecord: Equatable, Sendable {
    public static let fileName = "ward.state"
    /// The limit of doubtful intervals. More unclean ends without a repair are merged into one
    /// interval.
    public static let maximumIntervals = 64
    /// The largest epoch. The number after it is not used, so that every epoch has a greater
    /// number.
    public static let lastEpoch = UInt32.max - 1
    static let magic: [UInt8] = Array("WARDSTAT".utf8)

    /// The format of the volume.
    public var format: VolumeFormat
    /// Whether the volume is between the formats: it is written in format 2, and structures of
    /// format 1 may be left. Never in format 1.
    public var isUpgrading: Bool
    /// Whether a mount is running, or ended uncleanly.
    public var isInUse: Bool
    /// The last epoch used, or, in use, the first not known to be durable.
    public var epoch: UInt32
    /// Epochs of which pages may be missing (zeros), or a file's end. A torn page is never excused.
    public var doubtful: [ClosedRange<UInt32>]

    public init(
        format: VolumeFormat, isUpgrading: Bool = false, isInUse: Bool, epoch: UInt32,
        doubtful: [ClosedRange<UInt32>]
    ) {
        precondition(format >= .version2 || !isUpgrading)
        self.format = format
        self.isUpgrading = isUpgrading
        self.isInUse = isInUse
        self.epoch = epoch
        self.doubtful = doubtful
        if doubtful.count > VolumeStateRecord.maximumIntervals {
            self.doubtful = [doubtful.first!.lowerBound...doubtful.last!.upperBound]
        }
    }

    /// The epoch of the next mount; nil where no number is left.
    public var nextEpoch: UInt32? {
        let step: UInt32 = isInUse ? 2 : 1
        return epoch <= VolumeStateRecord.lastEpoch - step ? epoch + step : nil
    }

    /// The file's bytes, the MAC included.
    public func serialized(macKey: borrowing SecretBytes) -> [UInt8] {
        var bytes = VolumeStateRecord.magic
        bytes.append(littleEndian: format.rawValue)
        bytes += [isInUse ? 1 : 0, isUpgrading ? 1 : 0]
        bytes.append(littleEndian: epoch)
        bytes.append(littleEndian: UInt32(doubtful.count))
        bytes += [0, 0, 0, 0]
        for interval in doubtful {
            bytes.append(littleEndian: interval.lowerBound)
            bytes.append(littleEndian: interval.upperBound)
        }
        return bytes + HMACSHA256.authenticate(bytes, key: macKey)
    }

    public static let headBytes = 12

    /// The format that the first 12 bytes of a file name, unauthenticated. Format 1 where they are
    /// no state record's.
    public static func format(of head: [UInt8]) -> VolumeFormat {
        guard head.count >= headBytes, head[0..<8].elementsEqual(magic) else { return .version1 }
        return VolumeFormat(rawValue: head.littleEndian(at: 8, as: UInt16.self)) ?? .version1
    }

    /// Whether the first 12 bytes of a file say that the volume is being upgraded, unauthenticated.
    public static func isUpgrading(_ head: [UInt8]) -> Bool {
        format(of: head) >= .version2 && head[11] == 1
    }

    /// Reads a file's bytes and checks the MAC.
    ///
    /// Throws `FormatError` `notRecognised`, `newerVersion`, `authenticationFailed`, `malformed`.
    public init(reading bytes: [UInt8], macKey: borrowing SecretBytes) throws(FormatError) {
        guard bytes.count >= 56, bytes[0..<8].elementsEqual(VolumeStateRecord.magic) else {
            throw FormatError(.notRecognised, "state record: no magic")
        }
        let version = bytes.littleEndian(at: 8, as: UInt16.self)
        guard version <= VolumeFormat.version2.rawValue else {
            throw FormatError(.newerVersion, "state record: version \(version)")
        }
        let matches = bytes.withUnsafeBytes {
            HMACSHA256.verify(
                $0[(bytes.count - 32)...],
                of: UnsafeRawBufferPointer(rebasing: $0[0..<(bytes.count - 32)]), key: macKey)
        }
        guard matches else {
            throw FormatError(.authenticationFailed, "state record: MAC does not match")
        }
        let count = Int(bytes.littleEndian(at: 16, as: UInt32.self))
        guard let format = VolumeFormat(rawValue: version), bytes[10] <= 1,
            bytes[11] == 0 || bytes[11] == 1 && format >= .version2,
            bytes[20..<24].allSatisfy({ $0 == 0 }),
            count <= VolumeStateRecord.maximumIntervals, bytes.count == 24 + 8 * count + 32
        else { throw FormatError(.malformed, "state record: impossible field") }
        self.format = format
        isUpgrading = bytes[11] == 1
        isInUse = bytes[10] == 1
        epoch = bytes.littleEndian(at: 12, as: UInt32.self)
        guard epoch <= VolumeStateRecord.lastEpoch else {
            throw FormatError(.malformed, "state record: epoch \(epoch), which is never given")
        }
        doubtful = []
        for index in 0..<count {
            let first = bytes.littleEndian(at: 24 + 8 * index, as: UInt32.self)
            let last = bytes.littleEndian(at: 28 + 8 * index, as: UInt32.self)
            guard first <= last else {
                throw FormatError(.malformed, "state record: interval ends before it begins")
            }
            doubtful.append(first...last)
        }
    }
}

extension Array where Element == UInt8 {
    mutating func append<T: FixedWidthInteger>(littleEndian value: T) {
        Swift.withUnsafeBytes(of: value.littleEndian) { append(contentsOf: $0) }
    }

    func littleEndian<T: FixedWidthInteger>(at offset: Int, as type: T.Type) -> T {
        withUnsafeBytes { T(littleEndian: $0.loadUnaligned(fromByteOffset: offset, as: type)) }
    }
}
