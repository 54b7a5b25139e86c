import Glibc

/// The environment variables that `ward test` sets for its programs.
enum TestEnvironment {
    static let volumeVariable = "WARD_TEST_VOLUME"
    static let passcodeVariable = "WARD_TEST_PASSCODE_FILE"

    /// The mount point of the volume.
    static var volume: String? { value(of: volumeVariable) }
    static var passcodeFile: String? { value(of: passcodeVariable) }

    private static func value(of name: String) -> String? {
        guard let value = getenv(name), value.pointee != 0 else { return nil }
        return String(cString: value)
    }
}
