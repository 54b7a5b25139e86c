import CWardLinux
import Glibc
import Synchronization
import WardSystem
import WardVolume

/// A POSIX file system in memory as a volume's backing store. It can lose power after every call,
/// and any call can fail.
///
/// Paths are single names, "." and, below `AT_FDCWD`, the path given to `init`. Every call that
/// changes or flushes something counts; then `onChange` gets the disk's state after it.
///
/// Concurrency: any thread; everything is guarded by `state`. flush, counts; `onChange` is called
/// after it, with the disk as it is then.
package final class SimulatedDisk: Storage {
    struct Description {
        var identity: UInt64
        var isWritable: Bool
    }

    /// The calls that will fail.
    package struct Faults: Sendable {
        /// The number of calls that succeed first.
        package var after: Int
        package var error: Errno
        /// A failing write stores its first half, as on a disk that fills up.
        package var writesHalf = false
        /// All later calls fail too, not only one.
        package var isPermanent = false
        /// Calls that only read count and fail too.
        package var hitsLooks = false
        /// The blocks that a failing sync drops (`DiskImage.dropUnwritten`).
        package var droppedBlocks = UInt64.max

        package init(
            after: Int, _ error: Errno, writesHalf: Bool = false, isPermanent: Bool = false,
            hitsLooks: Bool = false, droppedBlocks: UInt64 = .max
        ) {
            self.after = after
            self.error = error
            self.writesHalf = writesHalf
            self.isPermanent = isPermanent
            self.hitsLooks = hitsLooks
            self.droppedBlocks = droppedBlocks
        }
    }

    struct State {
        var image: DiskImage
        var descriptors: [Int32: Description] = [:]
        var nextDescriptor: Int32 = 100
        var faults: Faults?
        var hasFailed = false
        var changes = 0
        var onChange: (@Sendable (DiskImage, StaticString) -> Void)?
    }

    let state: Mutex<State>
    let path: String

    package init(_ image: DiskImage, path: String = "/volume") {
        state = Mutex(State(image: image))
        self.path = path
    }

    // MARK: For those who test

    package var image: DiskImage { state.withLock { $0.image } }

    /// The number of calls that changed or flushed something.
    package var changes: Int { state.withLock { $0.changes } }

    /// The regular files that are open, by identity. Directories are left out: a volume caches
    /// hundreds of open ones.
    package var openFiles: [UInt64] {
        state.withLock { state in
            state.descriptors.values.map(\.identity).filter {
                state.image.inodes[$0]!.mode & S_IFMT == S_IFREG
            }.sorted()
        }
    }

    /// Sets the listener for changes and flushes; it gets the disk and the name of the call.
    package func onChange(_ body: (@Sendable (DiskImage, StaticString) -> Void)?) {
        state.withLock { $0.onChange = body }
    }

    /// Sets the calls that will fail, and clears `hasFailed`.
    package func fail(_ faults: Faults?) {
        state.withLock { state in
            state.faults = faults
            state.hasFailed = false
        }
    }

    /// Runs `body` without faults, then sets the faults again.
    func withoutFaults<R>(_ body: () throws -> R) rethrows -> R {
        let faults = state.withLock { state in
            defer { state.faults = nil }
            return state.faults
        }
        defer { state.withLock { $0.faults = faults } }
        return try body()
    }

    /// Whether a call has failed since `fail`.
    package var hasFailed: Bool { state.withLock { $0.hasFailed } }

    /// The identity of the inode that has this number now.
    package func identity(ofInode number: UInt64) -> UInt64? {
        state.withLock { state in
            state.image.inodes.values.first { $0.number == number && $0.links > 0 }?.identity
        }
    }

    /// Changes a file's content durably without the volume, as an attacker with the disk can.
    /// Returns false where `body` changes nothing.
    package func tamper(_ number: UInt64, _ body: (inout [UInt8]) -> Bool) -> Bool {
        state.withLock { state in
            guard
                let identity = state.image.inodes.values.first(where: { $0.number == number })?
                    .identity
            else { return false }
            let content = state.image.inodes[identity]!.content
            var bytes = [UInt8](repeating: 0, count: content.size)
            for (index, block) in content.blocks.enumerated() {
                guard let block else { continue }
                let start = index * DiskImage.blockBytes
                let count = min(DiskImage.blockBytes, content.size - start)
                bytes.replaceSubrange(start..<(start + count), with: block.bytes[0..<count])
            }
            guard body(&bytes) else { return false }
            state.image.change(identity, .truncate(0))
            bytes.withUnsafeBytes { state.image.write(identity, $0, at: 0) }
            state.image.syncAll()
            return true
        }
    }

    /// Changes the disk without the volume, as an attacker with the disk can.
    package func alter(_ body: (inout DiskImage) -> Void) {
        state.withLock { body(&$0.image) }
    }

    // MARK: Every call

    /// Runs one call that only reads.
    func look<R>(_ body: (inout State) throws(Errno) -> R) throws(Errno) -> R {
        var result: Result<R, Errno>?
        state.withLock { state in
            if state.faults?.hitsLooks == true, let error = SimulatedDisk.fault(&state) {
                result = .failure(error)
                return
            }
            do throws(Errno) {
                result = .success(try body(&state))
            } catch {
                result = .failure(error)
            }
        }
        return try result!.get()
    }

    /// Runs one call that changes or flushes something. The call may be chosen to fail; a
    /// successful one is reported to `onChange`.
    func change<R>(
        _ name: StaticString = #function, atFault: ((inout State) -> Void)? = nil,
        atFailedSync: ((inout State, _ droppedBlocks: UInt64) -> Void)? = nil,
        _ body: (inout State) throws(Errno) -> R
    ) throws(Errno) -> R {
        var result: Result<R, Errno>?
        var told: (DiskImage, @Sendable (DiskImage, StaticString) -> Void)?
        state.withLock { state in
            if let error = SimulatedDisk.fault(&state) {
                if state.faults?.writesHalf == true { atFault?(&state) }
                if let dropped = state.faults?.droppedBlocks { atFailedSync?(&state, dropped) }
                result = .failure(error)
                return
            }
            do throws(Errno) {
                result = .success(try body(&state))
                state.changes += 1
                if let listener = state.onChange { told = (state.image, listener) }
            } catch {
                result = .failure(error)
            }
        }
        if let told { told.1(told.0, name) }
        return try result!.get()
    }

    static func fault(_ state: inout State) -> Errno? {
        guard let faults = state.faults, faults.isPermanent || !state.hasFailed else { return nil }
        guard faults.after > 0 else {
            state.hasFailed = true
            return faults.error
        }
        state.faults!.after -= 1
        return nil
    }

    // MARK: Finding things

    static func inode(
        _ descriptor: Int32, _ state: borrowing State
    ) throws(Errno) -> DiskImage.Inode {
        guard let found = state.descriptors[descriptor] else { throw .badFileDescriptor }
        return state.image.inodes[found.identity]!
    }

    /// The open directory of a descriptor.
    func directory(
        _ descriptor: Int32, _ state: borrowing State
    ) throws(Errno) -> DiskImage.Inode {
        let inode = try SimulatedDisk.inode(descriptor, state)
        guard inode.mode & S_IFMT == S_IFDIR else { throw .notDirectory }
        return inode
    }

    func name(_ path: UnsafePointer<CChar>) throws(Errno) -> [UInt8] {
        let count = strlen(path)
        guard count > 0 else { throw .noSuchFileOrDirectory }
        guard count <= 255 else { throw .fileNameTooLong }
        let name = [UInt8](UnsafeRawBufferPointer(start: path, count: count))
        precondition(!name.contains(UInt8(ascii: "/")), "the simulated disk knows single names")
        return name
    }

    func find(
        _ descriptor: Int32, _ path: UnsafePointer<CChar>, _ state: borrowing State
    ) throws(Errno) -> UInt64? {
        if descriptor == AT_FDCWD {
            guard String(cString: path) == self.path else { throw .noSuchFileOrDirectory }
            return DiskImage.rootIdentity
        }
        let parent = try directory(descriptor, state)
        let name = try name(path)
        if name == [UInt8(ascii: ".")] { return parent.identity }
        return parent.entries[name]
    }

    func existing(
        _ descriptor: Int32, _ path: UnsafePointer<CChar>, _ state: borrowing State
    ) throws(Errno) -> DiskImage.Inode {
        guard let identity = try find(descriptor, path, state) else {
            throw .noSuchFileOrDirectory
        }
        return state.image.inodes[identity]!
    }

    /// The directory and the name for an entry that does not exist yet.
    func vacant(
        _ descriptor: Int32, _ path: UnsafePointer<CChar>, _ state: borrowing State
    ) throws(Errno) -> (UInt64, [UInt8]) {
        let parent = try directory(descriptor, state)
        // A removed directory takes no new names.
        guard parent.links > 0 else { throw .noSuchFileOrDirectory }
        let name = try name(path)
        if parent.entries[name] != nil { throw .fileExists }
        return (parent.identity, name)
    }

    static func forgetIfUnused(_ identity: UInt64, _ state: inout State) {
        guard let inode = state.image.inodes[identity], inode.links == 0,
            !state.descriptors.values.contains(where: { $0.identity == identity })
        else { return }
        state.image.free(identity)
    }
}
