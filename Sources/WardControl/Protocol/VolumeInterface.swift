/// The Varlink interface of a mounted volume: its names, and its text for clients in any language.
public enum VolumeInterface {
    public static let name = "org.ward.Volume"

    /// The name of a method or error of this interface as it crosses the socket.
    public static func qualified(_ member: String) -> String { name + "." + member }

    /// The members whose strings stay in locked memory.
    public static let secretMembers: Set<String> = ["passcode", "current", "secret"]

    /// The answer to `org.varlink.service.GetInterfaceDescription`.
    public static let description = statusTypes + otherTypes + methods + errors

    private static let errors = """
        error WrongPasscode (triesLeft: ?int)
        error TryLater (seconds: int)
        error Disabled ()
        error NoPasscodeSet ()
        error PasscodeAlreadySet ()
        error PasscodeNeeded ()
        error Erased ()
        error ClockNotManual ()
        error Busy (reason: string)
        error InvalidPasscode (reason: string)
        error Failed (what: string, why: string)
        error Locked ()
        error BeforeFirstUnlock ()
        error HostUnknown ()
        error HostExpired ()
        error HostExists ()
        error TooManyHosts ()
        error KernelKeepsPages (reason: string)

        """
}
