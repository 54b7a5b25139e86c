import WardControl

extension ControlService {
    /// `Backup`: answers when everything is durable and held. The hold lasts as long as the
    /// connection.
    func backup(_ call: ControlCall) { backups.begin(call) }
}
