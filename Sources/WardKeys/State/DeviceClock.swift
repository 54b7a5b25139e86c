import Glibc
import WardSystem

/// The clock that measures the delays after wrong passcodes, with its identity.
public struct DeviceClock: Sendable {
    /// 16 bytes. Times of clocks with different identities can't be compared.
    public let identity: [UInt8]
    public let now: @Sendable () -> Duration

    /// `CLOCK_BOOTTIME` of this boot of the machine (`/proc/sys/kernel/random/boot_id`).
    public static let system = DeviceClock(
        identity: bootIdentity(), now: { SystemClock.sinceBoot() })

    /// A test's clock, with a new identity each time.
    public static func manual(_ now: @escaping @Sendable () -> Duration) -> DeviceClock {
        DeviceClock(identity: SystemRandom.bytes(16), now: now)
    }

    /// Where /proc is not mounted, every process has a clock identity of its own, so delays start
    /// again in each process.
    private static func bootIdentity() -> [UInt8] {
        guard let file = try? OwnedDescriptor(opening: "/proc/sys/kernel/random/boot_id", O_RDONLY)
        else { return SystemRandom.bytes(16) }
        var text = [UInt8](repeating: 0, count: 64)
        let count =
            (try? text.withUnsafeMutableBytes {
                try Syscall.read(file.rawValue, $0.baseAddress!, $0.count)
            }) ?? 0
        let digits = text[..<count].compactMap { Character(UnicodeScalar($0)).hexDigitValue }
        guard digits.count == 32 else { return SystemRandom.bytes(16) }
        return stride(from: 0, to: 32, by: 2).map { UInt8(digits[$0] << 4 | digits[$0 + 1]) }
    }
}
