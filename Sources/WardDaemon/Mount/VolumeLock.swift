import Glibc
import WardControl
import WardSystem
import WardVolume

/// The exclusive lock on a backing directory, so that one daemon at a time serves a volume. Lasts
/// as long as this value.
struct VolumeLock: ~Copyable {
    private let hold: VolumeHold

    /// Throws exit code 75, with the other mount point, where the volume is mounted already.
    init(
        volumePath: String, runtimeDirectory: RuntimeDirectory, readOnly: Bool
    ) throws(DaemonError) {
        hold = try VolumeLock.acquire(volumePath, runtimeDirectory, readOnly)
    }

    private static func acquire(
        _ volumePath: String, _ runtimeDirectory: RuntimeDirectory, _ readOnly: Bool
    ) throws(DaemonError) -> VolumeHold {
        // A daemon that is being replaced needs a moment to end.
        for _ in 0..<20 {
            do throws(Errno) {
                let hold = try VolumeHold(volumePath, makesFile: !readOnly)
                // The file system has no locks: mounts from other machines or users go unnoticed.
                if !hold.isWithoutLocks { return hold }
                try requireNoOther(volumePath, runtimeDirectory)
                return hold
            } catch {
                guard error == .wouldBlock else {
                    throw DaemonError(
                        "mount", volumePath, "\(error)",
                        hint: DaemonError.advice(error, volumePath: volumePath),
                        status: DaemonError.status(of: error))
                }
            }
            if let mounted = mounted(volumePath, runtimeDirectory) { throw mounted }
            usleep(50_000)
        }
        throw DaemonError(
            "mount", volumePath,
            VolumeHold.holder(of: volumePath).map { "process \($0) has it mounted or checks it" }
                ?? "another process has it mounted or checks it, perhaps on another machine",
            hint: VolumeHold.holder(of: volumePath).map { "see what it is: ps -fp \($0)" }
                ?? "unmount it there", status: .temporary)
    }

    private static func requireNoOther(
        _ volumePath: String, _ runtimeDirectory: RuntimeDirectory
    ) throws(Errno) {
        if mounted(volumePath, runtimeDirectory) != nil { throw .wouldBlock }
    }

    /// The error with the present mount point, from the mount table or, for another mount
    /// namespace, a record. Nil where the volume is not mounted.
    private static func mounted(
        _ volumePath: String, _ runtimeDirectory: RuntimeDirectory
    ) -> DaemonError? {
        func mounted(_ place: String, _ name: String) -> DaemonError {
            DaemonError(
                "mount", volumePath, "it is mounted on \(place) already",
                hint: "ward unmount \(name)", status: .temporary)
        }
        if let mount = VolumeMount.all().first(where: {
            PathBytes.isSame($0.volume, volumePath) && $0.isServed
        }) {
            return mounted(mount.mountPoint, mount.mountPoint)
        }
        guard let record = runtimeDirectory.mounted().first(where: { $0.volume == volumePath })
        else { return nil }
        // Another mount may have its mount point by now, so the hint names the volume.
        return mounted(record.mountpoint, volumePath)
    }
}
