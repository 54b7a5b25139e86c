import CWardLinux
import Glibc
import Synchronization
import WardSystem
import WardVolume

@testable import WardFUSE

/// Sends requests to a volume, as the kernel might do, and checks each answer.
///
/// An input is a list of requests: opcode 1 ‖ node 1 ‖ handle 1 ‖ length 1 ‖ body. The kernel is
/// trusted in two points. It names only nodes and handles that it got (their numbers are
/// addresses), of the right kind, and it forgets what it looked up. So node and handle of an input
/// are indices into those given so far, and their numbers are put into the body. The input decides
/// everything else: flags, modes, sizes, offsets, names, data.
final class RequestPlayer {
    /// Opcodes that the kernel does not have.
    private static let lock: UInt8 = 200
    private static let unlock: UInt8 = 201

    private struct Node {
        var mode: mode_t
        var lookups: UInt64
    }

    private let volume: FuzzVolume
    private let channel = Channel()
    private let server: RequestServer<Channel>
    private var nodes: [NodeID: Node] = [1: Node(mode: S_IFDIR, lookups: 0)]
    /// The same nodes in the order in which they came.
    private var order: [NodeID] = [1]
    private var files: [(handle: HandleID, node: NodeID)] = []
    private var directories: [(handle: HandleID, node: NodeID)] = []

    init(_ volume: FuzzVolume) {
        self.volume = volume
        server = RequestServer(
            volume.volume, volume.context, .exclusive, hasExtendedSetxattr: true,
            SyncPool(volume.volume, workers: 2))
    }

    func play(_ input: [UInt8]) {
        var rest = input[...]
        var requests = 0
        while rest.count >= 4, requests < 64 {
            let head = Array(rest.prefix(4))
            let body = Array(rest.dropFirst(4).prefix(Int(head[3])))
            rest = rest.dropFirst(4 + body.count)
            requests += 1
            switch head[0] {
            case RequestPlayer.lock: volume.lock()
            case RequestPlayer.unlock: volume.unlock()
            default: request(head[0], head[1], head[2], body)
            }
        }
        end()
    }

    // MARK: One request

    private func request(_ opcode: UInt8, _ node: UInt8, _ handle: UInt8, _ body: [UInt8]) {
        let opcode = fuse_opcode(rawValue: UInt32(opcode % 53))
        guard let shape = Shape.of(opcode) else { return send(opcode, 1, body) }
        var body = body + [UInt8](repeating: 0, count: max(0, shape.bytes - body.count))
        guard let chosen = choose(shape, node, handle, &body) else { return }
        Shape.tidy(&body, from: shape.bytes, shape.names)
        send(opcode, chosen, body)
    }

    /// Chooses the request's node, and puts nodes and handles into the body. Nil where there is no
    /// such node.
    private func choose(
        _ shape: Shape, _ node: UInt8, _ handle: UInt8, _ body: inout [UInt8]
    ) -> NodeID? {
        switch shape.about {
        case .anything: return pick(order, node)
        case .directory: return pick(known(S_IFDIR), node)
        case .file: return pick(known(S_IFREG), node)
        case .link: return pick(known(S_IFLNK), node)
        case .fileHandle, .directoryHandle:
            let handles = shape.about == .fileHandle ? files : directories
            guard let open = pick(handles, handle) else { return nil }
            body.store(open.handle, at: 0)
            return open.node
        case .anythingOrHandle(let flag):
            // The node's own handle, or none.
            guard let id = pick(order, node) else { return nil }
            let open = files.filter { $0.node == id }
            if let open = pick(open, handle) {
                body.store(open.handle, at: 8)
            } else {
                body[flag / 8] &= ~(1 << UInt8(flag % 8))
            }
            return id
        case .twoDirectories, .nodeAndDirectory:
            let others =
                shape.about == .twoDirectories
                ? known(S_IFDIR) : order.filter { nodes[$0]!.mode & S_IFMT != S_IFDIR }
            guard let other = pick(others, handle) else { return nil }
            body.store(other, at: 0)
            return pick(known(S_IFDIR), node)
        }
    }

    private func known(_ type: mode_t) -> [NodeID] {
        order.filter { nodes[$0]!.mode & S_IFMT == type }
    }

    private func pick<T>(_ list: [T], _ index: UInt8) -> T? {
        list.isEmpty ? nil : list[Int(index) % list.count]
    }

    private func send(_ opcode: fuse_opcode, _ node: NodeID, _ body: [UInt8]) {
        switch opcode {
        case FUSE_FORGET, FUSE_BATCH_FORGET: return forget(node)
        // INIT was negotiated before, and DESTROY comes at the end.
        case FUSE_INIT, FUSE_DESTROY: return
        default: break
        }
        let answer = answer(to: opcode, node, body)
        guard let answer else { return }
        guard answer.error == 0 else {
            return require(answer.bytes.isEmpty, "an error with something behind it")
        }
        remember(opcode, node, body, answer.bytes)
        if opcode == FUSE_RELEASE { files.removeAll { $0.handle == body.load(at: 0) } }
        if opcode == FUSE_RELEASEDIR { directories.removeAll { $0.handle == body.load(at: 0) } }
    }

    /// Serves a request. Nil for an opcode without an answer.
    private func answer(
        to opcode: fuse_opcode, _ node: NodeID, _ body: [UInt8]
    ) -> (error: Int32, bytes: [UInt8])? {
        var header = fuse_in_header()
        header.len = UInt32(MemoryLayout<fuse_in_header>.size + body.count)
        header.opcode = opcode.rawValue
        header.unique = channel.begin()
        header.nodeid = node
        header.pid = UInt32(getpid())
        let message = withUnsafeBytes(of: header) { Array($0) } + body
        message.withUnsafeBytes { message in
            guard let request = Request(message) else { fatalError("a whole request is none") }
            server.serve(request, channel)
        }
        let isSilent = opcode == FUSE_INTERRUPT || opcode == FUSE_NOTIFY_REPLY
        return channel.end(expected: isSilent ? 0 : 1)
    }

    // MARK: What was given

    private func remember(
        _ opcode: fuse_opcode, _ node: NodeID, _ body: [UInt8], _ answer: [UInt8]
    ) {
        let entryBytes = MemoryLayout<fuse_entry_out>.size
        switch opcode {
        case FUSE_LOOKUP, FUSE_MKNOD, FUSE_MKDIR, FUSE_SYMLINK, FUSE_LINK:
            require(answer.count == entryBytes, "an entry of \(answer.count) bytes")
            remember(answer.load(at: 0, as: fuse_entry_out.self))
        case FUSE_CREATE, FUSE_TMPFILE:
            require(
                answer.count == entryBytes + MemoryLayout<fuse_open_out>.size,
                "a new file of \(answer.count) bytes")
            let entry = answer.load(at: 0, as: fuse_entry_out.self)
            remember(entry)
            files.append((answer.load(at: entryBytes), entry.nodeid))
        case FUSE_OPEN: files.append((answer.load(at: 0), node))
        case FUSE_OPENDIR: directories.append((answer.load(at: 0), node))
        case FUSE_READ:
            let wanted: UInt32 = body.load(at: 16)
            require(answer.count <= Int(wanted), "more is read than was asked for")
        case FUSE_READDIR, FUSE_READDIRPLUS:
            let wanted: UInt32 = body.load(at: 16)
            require(answer.count <= Int(wanted), "more is listed than was asked for")
            readListing(answer, withEntries: opcode == FUSE_READDIRPLUS)
        case FUSE_GETXATTR, FUSE_LISTXATTR:
            let wanted: UInt32 = body.load(at: 0)
            require(
                wanted == 0 || answer.count <= Int(wanted), "an attribute larger than asked for")
        default: break
        }
    }

    private func remember(_ entry: fuse_entry_out) {
        // Node 0: the name does not exist.
        guard entry.nodeid != 0 else { return }
        if nodes[entry.nodeid] == nil {
            nodes[entry.nodeid] = Node(mode: mode_t(entry.attr.mode), lookups: 0)
            order.append(entry.nodeid)
        }
        nodes[entry.nodeid]!.lookups += 1
    }

    private func readListing(_ listing: [UInt8], withEntries: Bool) {
        let headBytes =
            withEntries ? MemoryLayout<fuse_direntplus>.size : MemoryLayout<fuse_dirent>.size
        let direntBytes = MemoryLayout<fuse_dirent>.size
        var at = 0
        while at < listing.count {
            require(listing.count - at >= headBytes, "a listing ends in an entry")
            let dirent = listing.load(at: at + headBytes - direntBytes, as: fuse_dirent.self)
            let length = Int(dirent.namelen)
            require(
                (1...255).contains(length) && listing.count - at >= headBytes + length,
                "a name of \(length) bytes")
            let name = listing[(at + headBytes)..<(at + headBytes + length)]
            require(!name.contains(0) && !name.contains(UInt8(ascii: "/")), "an impossible name")
            if withEntries { remember(listing.load(at: at, as: fuse_entry_out.self)) }
            at += (headBytes + length + 7) & ~7
        }
        require(at == listing.count, "a listing ends in an entry")
    }

    /// Forgets all look-ups of a node, as the kernel does when the node is no longer in use.
    private func forget(_ node: NodeID) {
        guard node != 1, let known = nodes[node], known.mode & S_IFMT != S_IFDIR,
            !files.contains(where: { $0.node == node })
        else { return }
        drop(node, known.lookups)
    }

    private func drop(_ node: NodeID, _ lookups: UInt64) {
        let one = withUnsafeBytes(of: fuse_forget_in(nlookup: lookups)) { Array($0) }
        var header = fuse_in_header()
        header.len = UInt32(MemoryLayout<fuse_in_header>.size + one.count)
        header.opcode = FUSE_FORGET.rawValue
        header.unique = channel.begin()
        header.nodeid = node
        let message = withUnsafeBytes(of: header) { Array($0) } + one
        message.withUnsafeBytes { server.serve(Request($0)!, channel) }
        _ = channel.end(expected: 0)
        nodes[node] = nil
        order.removeAll { $0 == node }
    }

    /// Closes and forgets everything, as an unmount does. Items in a directory come before the
    /// directory.
    private func end() {
        volume.unlock()
        for file in files {
            _ = answer(to: FUSE_RELEASE, file.node, RequestPlayer.release(file.handle))
        }
        for directory in directories {
            _ = answer(to: FUSE_RELEASEDIR, directory.node, RequestPlayer.release(directory.handle))
        }
        for node in order.reversed() where node != 1 { drop(node, nodes[node]!.lookups) }
    }

    private static func release(_ handle: HandleID) -> [UInt8] {
        let request = fuse_release_in(fh: handle, flags: 0, release_flags: 0, lock_owner: 0)
        return withUnsafeBytes(of: request) { Array($0) }
    }

    // MARK: Answers

    /// Keeps the answer to one request.
    ///
    /// Concurrency: this thread also answers requests that sync, because at most half of the
    /// workers may do so at a time. The mutex satisfies the compiler.
    private final class Channel: ReplyChannel {
        private struct State {
            var unique: UInt64 = 0
            var answers: [(error: Int32, bytes: [UInt8])] = []
        }

        private let state = Mutex(State())

        func begin() -> UInt64 {
            state.withLock { state in
                state.unique += 2
                state.answers = []
                return state.unique
            }
        }

        func end(expected: Int) -> (error: Int32, bytes: [UInt8])? {
            let answers = state.withLock { $0.answers }
            require(answers.count == expected, "\(answers.count) answers to one request")
            return answers.first
        }

        func send(_ message: UnsafeRawBufferPointer) -> Bool {
            take([UInt8](message))
            return true
        }

        func send(_ head: UnsafeRawBufferPointer, _ payload: UnsafeRawBufferPointer) -> Bool {
            take([UInt8](head) + payload)
            return true
        }

        private func take(_ message: [UInt8]) {
            let head = message.load(at: 0, as: fuse_out_header.self)
            require(Int(head.len) == message.count, "an answer of another length")
            require((-511...0).contains(head.error), "an error that the kernel refuses")
            state.withLock { state in
                require(head.unique == state.unique, "an answer to another request")
                state.answers.append(
                    (head.error, Array(message.dropFirst(MemoryLayout<fuse_out_header>.size))))
            }
        }
    }
}

extension [UInt8] {
    func load<T: BitwiseCopyable>(at offset: Int, as type: T.Type = T.self) -> T {
        withUnsafeBytes { $0.loadUnaligned(fromByteOffset: offset, as: type) }
    }

    mutating func store<T: BitwiseCopyable>(_ value: T, at offset: Int) {
        withUnsafeMutableBytes { $0.storeBytes(of: value, toByteOffset: offset, as: T.self) }
    }
}
