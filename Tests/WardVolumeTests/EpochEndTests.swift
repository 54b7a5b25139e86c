import Glibc
import Testing
import WardFormat
import WardSystem

@testable import WardVolume

/// The end of the numbers of epochs: no epoch comes twice, and nothing wraps.
@Suite struct EpochEndTests {
    private let last = VolumeStateRecord.lastEpoch

    private func write(_ record: VolumeStateRecord, _ harness: VolumeHarness) throws {
        let root = try OwnedDescriptor(opening: harness.directory, O_RDONLY | O_DIRECTORY)
        try VolumeRoot.writeState(record, root.rawValue, harness.volume.keys, PosixStorage())
    }

    @Test(
        "A record after which no epoch is left is refused; without a change it can be read",
        arguments: VolumeFormat.allCases)
    func used(format: VolumeFormat) throws {
        for (isInUse, epoch) in [(false, last), (true, last - 1), (true, last)] {
            let harness = try VolumeHarness(format: format)
            let (_, handle) = try harness.create("f")
            try harness.write(handle, 0, [1, 2, 3])
            harness.volume.release(handle, harness.context)
            try harness.volume.close()
            try write(
                VolumeStateRecord(format: format, isInUse: isInUse, epoch: epoch, doubtful: []),
                harness)
            let error = #expect(throws: VolumeOpenError.self) { try harness.reopen(clean: false) }
            #expect(error?.code == .damaged)
            #expect(error?.reason.contains("used up") == true, "\(error?.reason ?? "")")
            let opened = try VolumeRoot.open(
                harness.directory, volumeKey: harness.volumeKey, storage: PosixStorage(),
                readOnly: true)
            #expect(opened.doubtful.allSatisfy { $0.lowerBound == epoch })
            close(opened.descriptor)
            close(opened.keptDescriptor)
        }
    }

    @Test("An epoch that is never given is damage", arguments: VolumeFormat.allCases)
    func never(format: VolumeFormat) throws {
        let harness = try VolumeHarness(format: format)
        try harness.volume.close()
        for isInUse in [false, true] {
            try write(
                VolumeStateRecord(format: format, isInUse: isInUse, epoch: .max, doubtful: []),
                harness)
            let error = #expect(throws: VolumeOpenError.self) { try harness.reopen(clean: false) }
            #expect(error?.code == .damaged)
            #expect(error?.reason.contains("never given") == true, "\(error?.reason ?? "")")
        }
    }

    @Test(
        "The last epoch goes on, over durable points and the end", arguments: VolumeFormat.allCases)
    func goesOn(format: VolumeFormat) throws {
        let harness = try VolumeHarness(format: format)
        try harness.volume.close()
        try write(
            VolumeStateRecord(format: format, isInUse: false, epoch: last - 1, doubtful: []),
            harness)
        try harness.reopen(clean: false)
        let (_, handle) = try harness.create("f")
        for byte in 0..<3 {
            try harness.write(handle, byte, [UInt8(byte)])
            try harness.volume.durablePoint()
            #expect(harness.volume.durability.epoch.load(ordering: .relaxed) == last)
        }
        harness.volume.release(handle, harness.context)
        try harness.volume.close()
        #expect(throws: VolumeOpenError.self) { try harness.reopen(clean: false) }
    }
}
