/// A process that has a file or directory of a mount in use (`Holder` of the interface).
public struct Holder: Hashable, Sendable {
    /// Names as they cross the socket.
    public enum Use: String, CaseIterable, Sendable {
        case read, write, readWrite
        /// A descriptor opened with `O_PATH`, which only names the file.
        case path
        case mapped, mappedForWriting, workingDirectory, rootDirectory
    }

    public var pid: Int
    public var uid: Int
    /// The command name, as `/proc/PID/comm` has it.
    public var program: String
    /// The path inside the volume.
    public var path: String
    /// A, B, C, D or CX: a file's class, or for a directory the class of new files in it. Nil where
    /// it is not known.
    public var protectionClass: String?
    /// A `Use`'s name.
    public var use: String

    public init(
        pid: Int, uid: Int, program: String, path: String, protectionClass: String?, use: Use
    ) {
        self.pid = pid
        self.uid = uid
        self.program = program
        self.path = path
        self.protectionClass = protectionClass
        self.use = use.rawValue
    }

    public var json: JSONValue {
        .object(present: [
            ("pid", .int(Int64(pid))), ("uid", .int(Int64(uid))), ("program", .string(program)),
            ("path", .string(path)), ("protectionClass", protectionClass.map { .string($0) }),
            ("use", .string(use)),
        ])
    }

    /// Nil where a member is missing or of another type.
    public init?(json: JSONValue) {
        guard let pid = json["pid"]?.intValue, let uid = json["uid"]?.intValue,
            let program = json["program"]?.stringValue, let path = json["path"]?.stringValue,
            let use = json["use"]?.stringValue
        else { return nil }
        self.init(
            pid: pid, uid: uid, program: program, path: path,
            protectionClass: json["protectionClass"]?.stringValue, use: .read)
        self.use = use
    }
}

/// The answer of `Holders`.
public struct HolderReport: Equatable, Sendable {
    /// Sorted by class, A first, then by process.
    public var holders: [Holder] = []
    /// The number of processes that the daemon may not examine.
    public var unreadable = 0
    /// The number of open files for which no process was found.
    public var unattributed = 0
    /// Whether the search was finished in time.
    public var isComplete = true
    /// The number of holders that did not fit into the answer.
    public var leftOut = 0

    public init() {}

    public var json: JSONValue {
        .object([
            ("holders", .array(holders.map(\.json))), ("unreadable", .int(Int64(unreadable))),
            ("unattributed", .int(Int64(unattributed))), ("complete", .bool(isComplete)),
            ("leftOut", .int(Int64(leftOut))),
        ])
    }

    /// Nil where `holders` is missing.
    public init?(json: JSONValue) {
        guard let holders = json["holders"]?.arrayValue else { return nil }
        self.holders = holders.compactMap(Holder.init(json:))
        unreadable = json["unreadable"]?.intValue ?? 0
        unattributed = json["unattributed"]?.intValue ?? 0
        isComplete = json["complete"]?.boolValue ?? true
        leftOut = json["leftOut"]?.intValue ?? 0
    }
}
