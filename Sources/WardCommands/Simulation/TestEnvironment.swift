import Glibc

/// What `ward test` tells the programs it runs.
enum TestEnvironment {
    static let volumeVariable = "WARD_TEST_VOLUME"
    static let passcodeVariable = "WARD_TEST_PASSCODE_FILE"

    /// Where the volume is mounted.
    static var volume: String? { value(of: volumeVariable) }
    static var passcodeFile: String? { value(of: passcodeVariable) }

    private static func value(of name: String) -> String? {
        guard let value = getenv(name), value.pointee != 0 else { return nil }
        return String(cString: value)
    }
}
