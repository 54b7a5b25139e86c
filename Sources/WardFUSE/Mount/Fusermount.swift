import CWardLinux
import Glibc
import WardSystem

/// The set-user-ID helper of the fuse3 package, fusermount3(1): mounts and unmounts for ordinary
/// users.
struct Fusermount {
    let program: String

    /// Finds the helper; nil where it is not installed.
    static func find() -> Fusermount? {
        var directories = ["/usr/bin", "/bin", "/usr/local/bin"]
        if let path = getenv("PATH") {
            directories.insert(
                contentsOf: String(cString: path).split(separator: ":").map(String.init), at: 0)
        }
        for directory in directories where directory.hasPrefix("/") {
            let candidate = directory + "/fusermount3"
            if access(candidate, X_OK) == 0 { return Fusermount(program: candidate) }
        }
        return nil
    }

    /// The complaint of the helper; nil for success.
    typealias Complaint = String

    /// Mounts, and returns the descriptor of `/dev/fuse`, which the helper sends over a socket
    /// (`SCM_RIGHTS`).
    func mount(_ options: [String], on mountPoint: String) throws(FUSEError) -> Int32 {
        let ends: (ours: Int32, theirs: Int32)
        do throws(Errno) {
            ends = try Syscall.socketPair()
        } catch {
            throw FUSEError(.refused, "mount on", mountPoint, "\(error)")
        }
        let ours = OwnedDescriptor(adopting: ends.ours)
        let theirs = OwnedDescriptor(adopting: ends.theirs)
        let complaint: Complaint?
        do throws(Errno) {
            complaint = try run(
                ["-o", options.joined(separator: ","), "--", mountPoint],
                communication: theirs.rawValue)
        } catch {
            throw FUSEError(.refused, "mount on", mountPoint, "\(program) does not start: \(error)")
        }
        if let complaint {
            throw FUSEError(.refused, "mount on", mountPoint, complaint)
        }
        guard let device = Fusermount.receiveDescriptor(ours.rawValue) else {
            throw FUSEError(
                .refused, "mount on", mountPoint, "fusermount3 sent no descriptor of /dev/fuse")
        }
        return device
    }

    func unmount(_ mountPoint: String, lazy: Bool) throws(FUSEError) {
        let complaint: Complaint?
        do throws(Errno) {
            complaint = try run(
                (lazy ? ["-u", "-z"] : ["-u"]) + ["--", mountPoint], communication: nil)
        } catch {
            throw FUSEError(.refused, "unmount", mountPoint, "\(program) does not start: \(error)")
        }
        guard let complaint else { return }
        if complaint.hasSuffix("busy") { throw Unmounting.busy(mountPoint) }
        throw FUSEError(.refused, "unmount", mountPoint, complaint)
    }

    // MARK: Running it

    /// Runs the helper to its end. Returns nil, or the last line of its standard error.
    private func run(_ arguments: [String], communication: Int32?) throws(Errno) -> Complaint? {
        let (reading, writing) = try Syscall.pipe()
        let output = OwnedDescriptor(adopting: reading)
        var input: OwnedDescriptor? = OwnedDescriptor(adopting: writing)

        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        // The copies have numbers above the targets, so that dup2 overwrites none before it is
        // used.
        let errorCopy = OwnedDescriptor(
            adopting: try Syscall.check { ward_fcntl_int(writing, F_DUPFD_CLOEXEC, 10) })
        posix_spawn_file_actions_adddup2(&actions, errorCopy.rawValue, STDERR_FILENO)
        var environment = ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"]
        var socketCopy: OwnedDescriptor?
        if let communication {
            let copy = try Syscall.check { ward_fcntl_int(communication, F_DUPFD_CLOEXEC, 10) }
            socketCopy = OwnedDescriptor(adopting: copy)
            posix_spawn_file_actions_adddup2(&actions, copy, 3)
            environment.append("_FUSE_COMMFD=3")
        }
        // The workers block all signals; the helper should not.
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var none = sigset_t()
        sigemptyset(&none)
        posix_spawnattr_setsigmask(&attributes, &none)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK))

        var child: pid_t = 0
        let argv = (["fusermount3"] + arguments).map { strdup($0) } + [nil]
        let envp = environment.map { strdup($0) } + [nil]
        defer { for text in argv + envp { free(text) } }
        let reason = posix_spawn(&child, program, &actions, &attributes, argv, envp)
        guard reason == 0 else { throw Errno(rawValue: reason) }
        _ = socketCopy.take()
        _ = consume errorCopy
        _ = input.take()

        let text = try Fusermount.readAll(output.rawValue)
        var status: Int32 = 0
        while waitpid(child, &status, 0) < 0 {
            // Other code of this process collected the child: only its output tells how it went.
            if ward_errno() != EINTR { return text.isEmpty ? nil : Fusermount.lastLine(text) }
        }
        if ward_wifexited(status) != 0, ward_wexitstatus(status) == 0 { return nil }
        return text.isEmpty ? "fusermount3 failed without a reason" : Fusermount.lastLine(text)
    }

    private static func readAll(_ descriptor: Int32) throws(Errno) -> [UInt8] {
        var text: [UInt8] = []
        let chunk = UnsafeMutableRawBufferPointer.allocate(byteCount: 1024, alignment: 16)
        defer { chunk.deallocate() }
        while true {
            let count = try Syscall.read(descriptor, chunk.baseAddress!, chunk.count)
            if count == 0 { return text }
            if text.count < 1 << 16 { text.append(contentsOf: chunk.prefix(count)) }
        }
    }

    /// Returns the last line, without the program's name before it.
    static func lastLine(_ text: [UInt8]) -> String {
        guard let line = text.split(separator: UInt8(ascii: "\n")).last else { return "" }
        let message = String(decoding: line, as: UTF8.self)
        let name = "fusermount3: "
        return message.hasPrefix(name) ? String(message.dropFirst(name.count)) : message
    }

    /// Receives one descriptor beside one byte, unix(7). Nil where the other end closed without
    /// sending one.
    private static func receiveDescriptor(_ socket: Int32) -> Int32? {
        // cmsghdr {size_t length; int level; int type}, then the descriptor;
        // CMSG_SPACE(sizeof(int)) is 24.
        var control: (Int, Int32, Int32, Int32, Int32) = (0, 0, 0, -1, 0)
        var byte: UInt8 = 0
        let received = withUnsafeMutableBytes(of: &control) { control in
            withUnsafeMutableBytes(of: &byte) { byte in
                var vector = iovec(iov_base: byte.baseAddress, iov_len: 1)
                return withUnsafeMutablePointer(to: &vector) { vector in
                    var message = msghdr()
                    message.msg_iov = vector
                    message.msg_iovlen = 1
                    message.msg_control = control.baseAddress
                    message.msg_controllen = control.count
                    while true {
                        let count = recvmsg(socket, &message, Int32(MSG_CMSG_CLOEXEC))
                        if count >= 0 || ward_errno() != EINTR { return count }
                    }
                }
            }
        }
        guard received == 1, control.1 == SOL_SOCKET, control.2 == 1 /* SCM_RIGHTS */ else {
            return nil
        }
        return control.3
    }
}
