import WardFormat
import WardSystem
import WardVolume

// Capsules of class B's keys (format 2, docs/format.md §3.1). Their names are hashes of their
// contents, so a name that was changed can be found again.
extension VolumeCheck {
    /// Looks for capsules under other names, and gives them back their own.
    func checkCapsules() {
        guard let misnamed = try? volume.misnamedCapsules() else { return }
        for (stored, id) in misnamed {
            let name = stored.dropLast().map(UInt8.init(bitPattern:))
            add(
                CheckFinding(
                    .name,
                    path: "/\(Capsule.directoryName)/" + String(decoding: name, as: UTF8.self),
                    protectionClass: .completeUnlessOpen,
                    problem: "a part of class B's keys does not have its own name",
                    remedy: "it gets the name that follows from its content")
            ) { () throws(Errno) in
                try volume.renameCapsule(stored, toNameOf: id)
                return nil
            }
        }
    }
}
