import WardFormat
import WardSystem
import WardVolume

// Cutting the power, recovering, and comparing.
extension CrashRun {
    func tryPowerCuts() {
        for (index, snapshot) in snapshots.enumerated() where index % settings.stride == 0 {
            cuts = SplitMix(seed: snapshot.seed)
            let image = snapshot.image.afterPowerCut(survival(), seed: cuts.next())
            _ = recover(
                image, snapshot.model, "\(index): \(snapshot.place)",
                depth: cuts.chance(1, in: 8) ? 0 : 2)
            if !report.losses.isEmpty { return }
        }
    }

    /// Opens the volume on the image and compares. With `depth` 0 it goes on with mending and with
    /// second power cuts.
    ///
    /// Returns the volume's state and the disk afterwards; nil where data was lost or the run can't
    /// go on.
    func recover(
        _ image: DiskImage, _ expected: CrashModel, _ place: String, depth: Int
    ) -> (model: CrashModel, image: DiskImage)? {
        report.points += 1
        let disk = SimulatedDisk(image)
        let pictures = Pictures()
        if depth == 0 { disk.onChange { image, name in pictures.images.append((image, name)) } }
        do {
            if settings.injectsErrors, cuts.chance(1, in: 8) {
                // Neither a mount that fails nor an error that the mount survives changes the
                // volume.
                disk.fail(nextFault(&cuts))
                _ = try? CrashVolume(keys, on: disk)
                disk.fail(nil)
            }
            let recovered = try CrashVolume(keys, on: disk)
            var judge = CrashJudge(expected, order: settings.disk.order, layout: layout)
            judge.judge(recovered)
            report.healed += recovered.events.healed
            guard judge.problems.isEmpty else {
                lose("after the power cut at \(place): \(judge.problems.joined(separator: "; "))")
                return nil
            }
            let found = judge.found
            // A run can't go on from a directory that a disk without a journal damaged before a
            // sync.
            if judge.isDamageAllowed { return nil }
            guard depth == 0 else { return (found, disk.image) }
            // A second power cut must not change the state that was found, whether it comes before,
            // during or after mending.
            let unmended = pictures.images.count
            if settings.injectsErrors {
                disk.fail(nextFault(&cuts))
                recovered.volume.mendDoubtfulFiles { false }
                disk.fail(nil)
                recovered.events.clear()
            }
            recovered.volume.mendDoubtfulFiles { false }
            if recovered.volume.isInDoubt {
                lose("\(place): the volume stays in doubt")
                return nil
            }
            var settled = found
            settled.syncAll()
            for (index, picture) in pictures.images.enumerated() {
                let second = picture.image.afterPowerCut(survival(), seed: cuts.next())
                let when = index < unmended ? "recovering" : "mending"
                _ = recover(
                    second, index < unmended ? expected : settled,
                    "\(place), and again while \(when), after \(picture.name)", depth: 2)
                if !report.losses.isEmpty { return nil }
            }
            return try closeAndCompare(recovered, settled, place)
        } catch {
            lose("after the power cut at \(place): the volume: \(error)")
            return nil
        }
    }

    /// After mending nothing is in doubt, so everything must be there on the flushed disk.
    func closeAndCompare(
        _ recovered: CrashVolume, _ expected: CrashModel, _ place: String
    ) throws -> (model: CrashModel, image: DiskImage)? {
        recovered.disk.onChange(nil)
        try recovered.volume.close()
        let disk = SimulatedDisk(
            recovered.disk.image.afterPowerCut(.onlyFlushed, seed: 0))
        let again = try CrashVolume(keys, on: disk)
        // After a failed sync the volume stays marked as in use.
        if again.volume.isInDoubt, !settings.injectsErrors {
            lose("\(place): in doubt after a clean end")
        }
        var judge = CrashJudge(expected, order: settings.disk.order, layout: layout)
        judge.judge(again)
        report.points += 1
        guard judge.problems.isEmpty, again.events.healed == 0 || again.volume.isInDoubt else {
            lose("\(place), mended and closed: \(judge.problems), \(again.events.healed) findings")
            return nil
        }
        return (expected, disk.image)
    }

    final class Pictures: @unchecked Sendable {
        // Sendable: used by one thread.
        var images: [(image: DiskImage, name: StaticString)] = []
    }
}
