import WardVolume

/// A kernel that keeps the pages it is told to drop, for tests: `ward mount --keep-pages`.
///
/// Concurrency: constant after `init`.
final class KernelKeepingPages: KernelNotifier {
    private let kernel: any KernelNotifier

    init(_ kernel: any KernelNotifier) { self.kernel = kernel }

    func invalidateContent(of node: NodeID) {}

    func invalidateAttributes(of node: NodeID) { kernel.invalidateAttributes(of: node) }

    func invalidateName(_ name: [UInt8], in parent: NodeID) {
        kernel.invalidateName(name, in: parent)
    }

    func awaitWriteBacks(until end: Duration) { kernel.awaitWriteBacks(until: end) }
}
