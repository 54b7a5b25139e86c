import CWardLinux
import Glibc
import WardSystem

/// Mounts: mount(2) as root, `fusermount3` for all other users.
enum Mounting {
    /// Mounts on a checked mount point. Returns the descriptor of `/dev/fuse`, on which the kernel
    /// now waits for INIT.
    static func mount(_ options: FUSEMountOptions, on point: MountPoint) throws(FUSEError) -> Int32
    {
        if geteuid() == 0 {
            return try mountAsRoot(options, on: point)
        }
        guard let helper = Fusermount.find() else {
            throw Unmounting.noHelper("mount on", options.mountPoint)
        }
        return try helper.mount(helperOptions(options), on: point.path)
    }

    /// Throws the failures that are known beforehand.
    static func check(_ options: FUSEMountOptions) throws(FUSEError) {
        guard access("/dev/fuse", F_OK) == 0 else {
            throw FUSEError(
                .noDevice, "mount on", options.mountPoint, "this machine has no /dev/fuse",
                hint:
                    "modprobe fuse; in a container: run it with --device /dev/fuse --cap-add SYS_ADMIN"
            )
        }
        if options.transport == .ioUring {
            do throws(Errno) {
                try RingTransport.check()
            } catch {
                throw FUSEError(
                    .refused, "mount on", options.mountPoint,
                    "this process may not use io_uring: \(error)",
                    hint:
                        "see /proc/sys/kernel/io_uring_disabled, or the container's system call filter"
                )
            }
        }
        guard geteuid() != 0 else { return }
        guard Fusermount.find() != nil else {
            throw Unmounting.noHelper("mount on", options.mountPoint)
        }
        if options.allowOther, !userAllowsOther() {
            throw FUSEError(
                .allowOtherForbidden, "mount on", options.mountPoint,
                "this machine does not let ordinary users give others access",
                hint:
                    "add the line user_allow_other to /etc/fuse.conf, or mount without --allow-other"
            )
        }
    }

    /// The options for `fusermount3`, which sets `nosuid,nodev` by itself.
    static func helperOptions(_ options: FUSEMountOptions) -> [String] {
        var list = [
            "fsname=" + escape(options.fileSystemName), "subtype=ward", "default_permissions",
        ]
        if options.allowOther { list.append("allow_other") }
        if options.readOnly { list.append("ro") }
        return list
    }

    /// Escapes commas and backslashes of an option's value.
    static func escape(_ value: String) -> String {
        var escaped = ""
        for character in value {
            if character == "," || character == "\\" { escaped.append("\\") }
            escaped.append(character)
        }
        return escaped
    }

    private static func mountAsRoot(
        _ options: FUSEMountOptions, on point: MountPoint
    ) throws(FUSEError) -> Int32 {
        let device: Int32
        do throws(Errno) {
            device = try Syscall.open("/dev/fuse", O_RDWR)
        } catch {
            throw FUSEError(
                .noDevice, "mount on", options.mountPoint, "/dev/fuse does not open: \(error)",
                hint:
                    "modprobe fuse; in a container: run it with --device /dev/fuse --cap-add SYS_ADMIN"
            )
        }
        var data =
            "fd=\(device),rootmode=40000,user_id=\(geteuid()),group_id=\(getegid())"
            + ",default_permissions"
        if options.allowOther { data += ",allow_other" }
        let flags: UInt = options.readOnly ? UInt(MS_RDONLY) : 0
        let result = data.withCString {
            Glibc.mount(options.fileSystemName, point.path, "fuse.ward", flags, $0)
        }
        guard result == 0 else {
            let reason = Errno(rawValue: ward_errno())
            Syscall.close(device)
            throw FUSEError(
                .refused, "mount on", options.mountPoint, "the kernel says: \(reason)",
                hint: reason == .notPermitted
                    ? "in a container: run it with --device /dev/fuse --cap-add SYS_ADMIN" : nil)
        }
        return device
    }

    private static func userAllowsOther() -> Bool {
        guard let file = try? OwnedDescriptor(opening: "/etc/fuse.conf", O_RDONLY) else {
            return false
        }
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 1 << 16, alignment: 16)
        defer { buffer.deallocate() }
        guard
            let count = try? Syscall.pread(
                file.rawValue, buffer.baseAddress!, buffer.count, at: 0)
        else { return false }
        return allowsOther(buffer.prefix(count))
    }

    /// Whether the configuration has the line `user_allow_other`, mount.fuse3(8).
    static func allowsOther(_ configuration: some Collection<UInt8>) -> Bool {
        configuration.split(separator: UInt8(ascii: "\n")).contains { line in
            String(decoding: line.filter { $0 > 0x20 }, as: UTF8.self) == "user_allow_other"
        }
    }
}
