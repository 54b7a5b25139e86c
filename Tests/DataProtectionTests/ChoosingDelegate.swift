import DataProtection

/// Forbids to copy items with the name "no", and remembers each question. On Linux a delegate must
/// have every method.
final class ChoosingDelegate: NSObject, FileManagerDelegate, @unchecked Sendable {
    // Sendable: one thread uses it.
    var asked: [String] = []

    func fileManager(
        _ fileManager: FileManager, shouldCopyItemAtPath srcPath: String, toPath dstPath: String
    ) -> Bool {
        asked.append((srcPath as NSString).lastPathComponent)
        return !srcPath.hasSuffix("/no")
    }

    func fileManager(
        _ fileManager: FileManager, shouldCopyItemAt srcURL: URL, to dstURL: URL
    ) -> Bool { true }

    func fileManager(
        _ fileManager: FileManager, shouldProceedAfterError error: any Error,
        copyingItemAtPath srcPath: String, toPath dstPath: String
    ) -> Bool { false }

    func fileManager(
        _ fileManager: FileManager, shouldProceedAfterError error: any Error,
        copyingItemAt srcURL: URL, to dstURL: URL
    ) -> Bool { false }

    func fileManager(
        _ fileManager: FileManager, shouldMoveItemAtPath srcPath: String, toPath dstPath: String
    ) -> Bool { true }

    func fileManager(
        _ fileManager: FileManager, shouldMoveItemAt srcURL: URL, to dstURL: URL
    ) -> Bool { true }

    func fileManager(
        _ fileManager: FileManager, shouldProceedAfterError error: any Error,
        movingItemAtPath srcPath: String, toPath dstPath: String
    ) -> Bool { false }

    func fileManager(
        _ fileManager: FileManager, shouldProceedAfterError error: any Error,
        movingItemAt srcURL: URL, to dstURL: URL
    ) -> Bool { false }

    func fileManager(
        _ fileManager: FileManager, shouldLinkItemAtPath srcPath: String, toPath dstPath: String
    ) -> Bool { true }

    func fileManager(
        _ fileManager: FileManager, shouldLinkItemAt srcURL: URL, to dstURL: URL
    ) -> Bool { true }

    func fileManager(
        _ fileManager: FileManager, shouldProceedAfterError error: any Error,
        linkingItemAtPath srcPath: String, toPath dstPath: String
    ) -> Bool { false }

    func fileManager(
        _ fileManager: FileManager, shouldProceedAfterError error: any Error,
        linkingItemAt srcURL: URL, to dstURL: URL
    ) -> Bool { false }

    func fileManager(_ fileManager: FileManager, shouldRemoveItemAtPath path: String) -> Bool {
        true
    }

    func fileManager(_ fileManager: FileManager, shouldRemoveItemAt url: URL) -> Bool { true }

    func fileManager(
        _ fileManager: FileManager, shouldProceedAfterError error: any Error,
        removingItemAtPath path: String
    ) -> Bool { false }

    func fileManager(
        _ fileManager: FileManager, shouldProceedAfterError error: any Error,
        removingItemAt url: URL
    ) -> Bool { false }
}
