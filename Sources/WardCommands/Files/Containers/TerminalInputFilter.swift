import Glibc

/// A seccomp(2) filter that forbids a program to type into its terminal: `TIOCSTI`, and pasting
/// with `TIOCLINUX` on a console. A shell that reads the terminal later would run the typed text
/// outside the sandbox. All other calls are allowed.
enum TerminalInputFilter {
    /// asm-generic/ioctls.h; the same on x86 and ARM.
    private static let requests: [UInt32] = [0x5412 /* TIOCSTI */, 0x541C /* TIOCLINUX */]

    /// The architectures of linux/audit.h with their numbers for ioctl(2). One kernel may run
    /// programs of several architectures.
    private static let architectures: [(architecture: UInt32, calls: [UInt32])] = [
        (0xC000_003E /* x86_64 */, [16, 0x4000_0000 + 514 /* x32 */]),
        (0x4000_0003 /* i386 */, [54]),
        (0xC000_00B7 /* aarch64 */, [29]),
        (0x4000_0028 /* arm */, [54]),
    ]

    /// `struct sock_filter` of linux/filter.h: code (2 bytes), jump if true (1), jump if false (1),
    /// value (4), in native byte order. Jumps count instructions.
    private struct Instruction {
        var code: UInt16
        var ifTrue: UInt8 = 0
        var ifFalse: UInt8 = 0
        var value: UInt32

        var bytes: [UInt8] {
            withUnsafeBytes(of: code) { Array($0) } + [ifTrue, ifFalse]
                + withUnsafeBytes(of: value) { Array($0) }
        }
    }

    /// Offsets in `struct seccomp_data`, linux/seccomp.h. `request` is the low half of the second
    /// argument on a little-endian machine.
    private enum Field: UInt32 {
        case call = 0
        case architecture = 4
        case request = 24
    }

    private static func load(_ field: Field) -> Instruction {
        Instruction(code: 0x20 /* BPF_LD | BPF_W | BPF_ABS */, value: field.rawValue)
    }

    /// Skips `count` instructions where the loaded value differs from `value`.
    private static func unless(_ value: UInt32, over count: Int) -> Instruction {
        Instruction(
            code: 0x15 /* BPF_JMP | BPF_JEQ | BPF_K */, ifFalse: UInt8(count), value: value)
    }

    private static func answer(_ value: UInt32) -> Instruction {
        Instruction(code: 0x06 /* BPF_RET | BPF_K */, value: value)
    }

    private static let allow = answer(0x7FFF_0000 /* SECCOMP_RET_ALLOW */)
    private static let refuse = answer(0x0005_0000 | UInt32(EPERM) /* SECCOMP_RET_ERRNO */)

    /// The filter for bwrap(1) `--seccomp`.
    static var program: [UInt8] {
        var whole: [Instruction] = []
        for (architecture, calls) in architectures {
            var block: [Instruction] = []
            for call in calls {
                var refusal = [load(.request)]
                for request in requests { refusal += [unless(request, over: 1), refuse] }
                refusal.append(allow)
                block += [load(.call), unless(call, over: refusal.count)] + refusal
            }
            block.append(allow)
            whole += [load(.architecture), unless(architecture, over: block.count)] + block
        }
        whole.append(allow)
        return whole.flatMap(\.bytes)
    }
}
