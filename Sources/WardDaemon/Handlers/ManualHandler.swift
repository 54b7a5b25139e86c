import WardControl
import WardSystem
import WardVolume

/// `Advance` and `SetFull`: tests move the clock and fill the backing store.
///
/// Concurrency: the server's thread.
final class ManualHandler: Sendable {
    private let time: any TimeSource
    private let keeper: LockKeeper
    /// The backing store that can be made full, where the clock is manual.
    private let fillable: FillableStorage?
    private let erasing: EraseHandler

    init(_ mount: MountParts, erasing: EraseHandler) {
        time = mount.time
        keeper = mount.keeper
        fillable = mount.fillable
        self.erasing = erasing
    }

    func advance(_ call: ControlCall) {
        guard let manual = time as? ManualTime else {
            call.fail(.clockNotManual)
            return
        }
        guard let seconds = call.parameters["seconds"]?.doubleValue, seconds >= 0,
            seconds < 1_000_000_000
        else {
            call.failInvalidParameter("seconds")
            return
        }
        keeper.advance(manual, by: .seconds(seconds)) { [self] state in
            erasing.noteTime()
            call.reply(.state(state))
        }
    }

    func setFull(_ call: ControlCall) {
        guard let fillable else { return call.fail(.clockNotManual) }
        guard let full = call.parameters["full"]?.boolValue else {
            return call.failInvalidParameter("full")
        }
        fillable.setFull(full)
        call.reply()
    }
}
