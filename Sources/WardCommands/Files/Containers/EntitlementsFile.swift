import WardConsole
import WardContainers
import WardSystem

/// The property list that `--entitlements` names.
enum EntitlementsFile {
    private static let what = "cannot use the entitlements in"

    static func read(_ path: String) throws(CommandFailure) -> Entitlements {
        let bytes: [UInt8]
        do throws(Errno) {
            // One byte more than the limit, so that the parser sees a file that is too large.
            bytes = try FileReading.bytes(of: path, limit: Entitlements.maximumBytes + 1)
        } catch {
            throw CommandFailure(what, path, errno: error, status: .noInput)
        }
        do throws(EntitlementsError) {
            return try Entitlements(propertyList: bytes)
        } catch {
            throw CommandFailure(
                what, path, why: error.reason,
                hint: error.advice
                    ?? "take the .entitlements file of the Xcode project as it is, or what "
                    + "codesign -d --entitlements - --xml NAME.app prints",
                status: .badData)
        }
    }
}
