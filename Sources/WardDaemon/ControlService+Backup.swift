import WardControl

extension ControlService {
    /// `Backup`: the answer comes when everything is durable and held; the hold lasts as long as
    /// the connection.
    func backup(_ call: ControlCall) { backups.begin(call) }
}
