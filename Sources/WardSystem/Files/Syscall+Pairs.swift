import CWardLinux
import Glibc

// Two connected descriptors.
extension Syscall {
    /// A connected pair of pipe ends, read end first, both close-on-exec.
    public static func pipe() throws(Errno) -> (reading: Int32, writing: Int32) {
        var ends: (Int32, Int32) = (-1, -1)
        _ = try check {
            withUnsafeMutableBytes(of: &ends) {
                ward_pipe2($0.baseAddress!.assumingMemoryBound(to: Int32.self), O_CLOEXEC)
            }
        }
        return (ends.0, ends.1)
    }

    /// A connected pair of stream sockets, socketpair(2), both close-on-exec.
    public static func socketPair() throws(Errno) -> (ours: Int32, theirs: Int32) {
        var ends: (Int32, Int32) = (-1, -1)
        let type = Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
        _ = try check {
            withUnsafeMutableBytes(of: &ends) {
                socketpair(AF_UNIX, type, 0, $0.baseAddress!.assumingMemoryBound(to: Int32.self))
            }
        }
        return (ends.0, ends.1)
    }
}
