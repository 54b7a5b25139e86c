import WardControl
import WardKeys
import WardSystem

extension KeybagError.Code {
    /// The keybag's error that a daemon reported.
    public init(_ refusal: VolumeError.Refusal) {
        self =
            switch refusal {
            case .disabled: .disabled
            case .noPasscodeSet: .noPasscodeSet
            case .passcodeAlreadySet: .passcodeAlreadySet
            case .passcodeNeeded: .passcodeNeeded
            case .erased: .erased
            case .beforeFirstUnlock: .beforeFirstUnlock
            case .hostUnknown: .hostUnknown
            case .hostExpired: .hostExpired
            case .hostExists: .hostExists
            case .tooManyHosts: .tooManyHosts
            }
    }
}

extension VolumeError {
    /// The keybag's error as the socket has it; nil where the interface has none for it.
    init?(_ code: KeybagError.Code) {
        switch code {
        case .wrongPasscode(let triesLeft): self = .wrongPasscode(triesLeft: triesLeft)
        case .tryLater(let wait): self = .tryLater(seconds: Int(wait.inSeconds.rounded(.up)))
        default:
            let refusal = Refusal.allCases.first { KeybagError.Code($0) == code }
            guard let refusal else { return nil }
            self = .refused(refusal)
        }
    }
}
