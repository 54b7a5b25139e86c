/// The version of this build; `ward version` and the daemon's `Status` answer it.
public enum WardVersion {
    public static let current = "0.1.0"
}
