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

    /// Opens the volume on what is left, and compares. `depth` 0: goes on with a second power cut,
    /// or with mending.
    ///
    /// Returns how a program finds the volume, and the disk as it is then; nil where something was
    /// lost.
    func recover(
        _ image: DiskImage, _ expected: CrashModel, _ place: String, depth: Int
    ) -> (model: CrashModel, image: DiskImage)? {
        report.points += 1
        let disk = SimulatedDisk(image)
        let pictures = Pictures()
        if depth == 0 { disk.onChange { image, name in pictures.images.append((image, name)) } }
        do {
            if settings.injectsErrors, cuts.chance(1, in: 8) {
                // A mount that fails, or an error that it can do without, changes nothing.
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
            // Nobody can go on from a directory that a disk without a journal damaged before it was
            // synced.
            if judge.isDamageAllowed { return nil }
            guard depth == 0 else { return (found, disk.image) }
            // The state that was found is what a second power cut may not change, wherever it
            // comes: before anything was mended, while it is, and after.
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

    /// After mending nothing is in doubt: it all has to be there without it.
    func closeAndCompare(
        _ recovered: CrashVolume, _ expected: CrashModel, _ place: String
    ) throws -> (model: CrashModel, image: DiskImage)? {
        recovered.disk.onChange(nil)
        try recovered.volume.close()
        let disk = SimulatedDisk(
            recovered.disk.image.afterPowerCut(.onlyFlushed, seed: 0))
        let again = try CrashVolume(keys, on: disk)
        // After a sync that failed a volume stays marked as in use.
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
        // Sendable: one thread.
        var images: [(image: DiskImage, name: StaticString)] = []
    }
}
