/// The methods of `org.ward.Volume`, by their names in the interface.
public enum ControlMethod: String, CaseIterable, Sendable {
    case status = "Status"
    case holders = "Holders"
    case monitor = "Monitor"
    case lock = "Lock"
    case unlock = "Unlock"
    case reboot = "Reboot"
    case unmount = "Unmount"
    case setPasscode = "SetPasscode"
    case changePasscode = "ChangePasscode"
    case removePasscode = "RemovePasscode"
    case setPolicy = "SetPolicy"
    case readRecovery = "ReadRecovery"
    case erase = "Erase"
    case cancelErase = "CancelErase"
    case trustAdd = "TrustAdd"
    case trustConnect = "TrustConnect"
    case trustList = "TrustList"
    case trustRemove = "TrustRemove"
    case backup = "Backup"
    case check = "Check"
    case advance = "Advance"
    case setFull = "SetFull"

    /// The name as it crosses the socket.
    public var qualifiedName: String { VolumeInterface.qualified(rawValue) }

    /// Whether a call needs "more", and lasts until its connection ends.
    var isLasting: Bool {
        switch self {
        case .monitor, .backup, .check, .trustConnect: true
        default: false
        }
    }
}
