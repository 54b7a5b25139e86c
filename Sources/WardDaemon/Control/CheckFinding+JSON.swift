import WardControl
import WardFormat
import WardVolumeCheck

// Findings and reports as the control socket carries them, and as `ward check --json` prints them.
extension CheckFinding {
    private static let longestList = 500

    public var json: JSONValue {
        let (outcome, reason): (String, String?) =
            switch self.outcome {
            case .found: ("found", nil)
            case .repaired: ("repaired", nil)
            case .left(let reason): ("left", reason)
            }
        return .object(present: [
            ("kind", .string(kind.rawValue)), ("path", .string(path)),
            ("protectionClass", protectionClass.map { .string($0.letter) }),
            (
                "bytes",
                .array(
                    bytes.prefix(CheckFinding.longestList).map {
                        .object([
                            ("first", .int(Int64($0.lowerBound))),
                            ("last", .int(Int64($0.upperBound - 1))),
                        ])
                    })
            ),
            ("ranges", .int(Int64(bytes.count))), ("problem", .string(problem)),
            ("remedy", .string(remedy)), ("outcome", .string(outcome)),
            ("reason", reason.map { .string($0) }),
            ("quarantine", quarantined.map { .string($0) }),
        ])
    }

    public init?(json: JSONValue) {
        guard let kind = json["kind"]?.stringValue.flatMap(Kind.init(rawValue:)),
            let path = json["path"]?.stringValue, let problem = json["problem"]?.stringValue,
            let remedy = json["remedy"]?.stringValue
        else { return nil }
        let outcome: Outcome
        switch json["outcome"]?.stringValue {
        case "found": outcome = .found
        case "repaired": outcome = .repaired
        case "left": outcome = .left(json["reason"]?.stringValue ?? "")
        default: return nil
        }
        var bytes: [Range<Int>] = []
        for range in json["bytes"]?.arrayValue ?? [] {
            guard let first = range["first"]?.intValue, let last = range["last"]?.intValue,
                first <= last, last < .max
            else { return nil }
            bytes.append(first..<last + 1)
        }
        self.init(
            kind, path: path,
            protectionClass: json["protectionClass"]?.stringValue.flatMap {
                ProtectionClass(spelling: $0)
            }, bytes: bytes, problem: problem, remedy: remedy, outcome: outcome,
            quarantined: json["quarantine"]?.stringValue)
    }
}

extension CheckProgress {
    public var json: JSONValue {
        .object([
            ("directories", .int(Int64(directories))), ("files", .int(Int64(files))),
            ("bytes", .int(Int64(bytes))), ("findings", .int(Int64(findings))),
        ])
    }

    public init?(json: JSONValue) {
        guard let directories = json["directories"]?.intValue, let files = json["files"]?.intValue,
            let bytes = json["bytes"]?.intValue, let findings = json["findings"]?.intValue
        else { return nil }
        self.init()
        self.directories = directories
        self.files = files
        self.bytes = bytes
        self.findings = findings
    }
}

extension CheckReport {
    private static let longestList = 100

    /// The report without its findings: each of them was sent before.
    public var json: JSONValue {
        let unread = ProtectionClass.allCases.compactMap { protectionClass -> JSONValue? in
            guard let count = self.unread[protectionClass] else { return nil }
            return .object([
                ("protectionClass", .string(protectionClass.letter)), ("files", .int(Int64(count))),
            ])
        }
        func list(_ texts: [String]) -> JSONValue {
            .array(texts.prefix(CheckReport.longestList).map { .string($0) })
        }
        return .object(present: [
            ("progress", progress.json), ("unread", .array(unread)),
            ("unreachable", list(unreachable)), ("foreign", list(foreign)),
            ("interrupted", .bool(isInterrupted)), ("doubtful", .bool(isInDoubt)),
            ("complete", .bool(isComplete)), ("reportPath", reportPath.map { .string($0) }),
        ])
    }

    public init?(json: JSONValue) {
        guard let progress = json["progress"].flatMap(CheckProgress.init(json:)) else { return nil }
        self.init()
        self.progress = progress
        for entry in json["unread"]?.arrayValue ?? [] {
            guard let letter = entry["protectionClass"]?.stringValue,
                let protectionClass = ProtectionClass(spelling: letter),
                let count = entry["files"]?.intValue
            else { return nil }
            unread[protectionClass] = count
        }
        unreachable = json["unreachable"]?.arrayValue?.compactMap(\.stringValue) ?? []
        foreign = json["foreign"]?.arrayValue?.compactMap(\.stringValue) ?? []
        isInterrupted = json["interrupted"]?.boolValue ?? true
        isInDoubt = json["doubtful"]?.boolValue ?? false
        reportPath = json["reportPath"]?.stringValue
    }
}
